import io

import numpy as np
import pytest
from PIL import Image

from data.errors import DatasetError
from data.formats.limits import Budget
from data.formats.pictures import decode, picture_form

RGB = np.array(
    [[[250, 20, 10], [30, 240, 50], [5, 60, 200]], [[1, 2, 3], [99, 98, 97], [7, 77, 177]]], np.uint8
)


def packed(array, kind, **settings):
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **settings)
    return file.getvalue()


@pytest.mark.parametrize("settings", [{}, {"progressive": True}, {"comment": b"x" * 300}, {"dpi": (72, 72)}])
def test_the_size_of_a_jpeg_is_read_whatever_stands_before_it(settings):
    array = np.zeros((40, 72, 3), np.uint8) + np.array([200, 100, 20], np.uint8)
    content = packed(array, "JPEG", quality=95, **settings)
    assert picture_form(content, "here") == (40, 72, False)
    found = decode(content, Budget(40 * 72 * 3, "here"), "here")
    assert np.abs(found.astype(int) - array).max() < 6


def test_a_png_comes_back_as_it_was():
    assert picture_form(packed(RGB, "PNG"), "here") == (2, 3, False)
    np.testing.assert_array_equal(decode(packed(RGB, "PNG"), Budget(18, "here"), "here"), RGB)


def test_a_deep_png_keeps_its_16_bits():
    deep = np.array([[1, 256], [65_535, 770]], np.uint16)
    found = decode(packed(deep, "PNG"), Budget(8, "here"), "here")
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found[..., 0], deep)


def test_a_picture_beyond_the_budget_is_not_decoded():
    with pytest.raises(DatasetError, match="here, 3 x 2 pixels, unfolds to 18 bytes"):
        decode(packed(RGB, "PNG"), Budget(17, "a file"), "here")


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_pictures_cut_short_anywhere_and_other_content_are_refused(kind):
    content = packed(np.tile(RGB, (9, 9, 1)), kind)
    cut = [content[: int(len(content) * share)] for share in (0.02, 0.3, 0.6, 0.9)] + [content[:-1]]
    for broken in (
        *cut,
        b"",
        b"\xff\xd8",
        b"GIF89a" + bytes(20),
        b"\xff\xd8\xff\xe0\xff\xff",
        b"\xff\xd8\xff\xd9",
    ):
        with pytest.raises(DatasetError, match="no whole JPEG or PNG"):
            decode(broken, Budget(10_000, "here"), "here")


def test_a_jpeg_with_a_second_frame_header_is_refused():
    content = packed(RGB, "JPEG")
    start = content.index(b"\xff\xc0")
    header = bytearray(content[start : start + 2 + int.from_bytes(content[start + 2 : start + 4], "big")])
    header[5:9] = b"\xff\xff\xff\xff"
    with pytest.raises(DatasetError, match="no whole JPEG or PNG"):
        decode(content[:-2] + bytes(header) + content[-2:], Budget(100, "here"), "here")


def test_a_picture_whose_content_is_broken_is_refused():
    content = bytearray(packed(RGB, "PNG"))
    place = content.index(b"IDAT") + 4
    content[place : place + 6] = b"\0" * 6
    with pytest.raises(DatasetError, match="cannot be decoded"):
        decode(bytes(content), Budget(100, "here"), "here")
