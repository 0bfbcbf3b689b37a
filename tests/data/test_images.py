import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numcodecs.zstd import Zstd
from PIL import Image

from data.images import (
    PictureCodec,
    PictureError,
    crc32c,
    decode_jpeg,
    decode_lossless,
    encode_jpeg,
    encode_lossless,
    is_picture,
)


def scene(height=48, width=64):
    """A lit slope with a red disc right of the middle: nothing about it is symmetric."""
    y, x = np.mgrid[:height, :width]
    picture = np.stack([x * 2, y * 3, x + y], axis=2)
    picture[(x - 45) ** 2 + (y - 20) ** 2 < 80] = (230, 20, 40)
    return picture.astype(np.uint8)


@given(
    arrays(
        np.uint8,
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5)),
        elements=st.integers(0, 255),
    )
)
def test_lossless_pictures_come_back_equal(picture):
    np.testing.assert_array_equal(decode_lossless(encode_lossless(picture), picture.shape), picture)


def test_the_memory_layout_of_a_picture_does_not_matter():
    picture = scene()
    assert encode_lossless(np.asfortranarray(picture)) == encode_lossless(picture)
    assert encode_lossless(picture[:, ::-1].copy()[:, ::-1]) == encode_lossless(picture)


def test_the_checksum_is_that_of_the_castagnoli_polynomial():
    assert crc32c(b"123456789") == 0xE3069283  # check value of CRC-32C in the catalogue of CRC algorithms


@pytest.mark.parametrize("place", [0, 20, -1])
def test_a_changed_byte_is_noticed(place):
    content = bytearray(encode_lossless(scene()))
    content[place] ^= 1
    with pytest.raises(PictureError, match="checksum"):
        decode_lossless(bytes(content), scene().shape)


def bomb(values):
    content = bytes(Zstd().encode(np.zeros(values, np.uint8)))
    return content + crc32c(content).to_bytes(4, "little")


SIZES = {
    "huge": bomb(1 << 28),
    "small": bomb(5),
    "none": b"",
    "short": b"1234",
    "one more": bomb(48 * 64 * 3 + 1),
}


@pytest.mark.parametrize("content", SIZES.values(), ids=SIZES)
def test_a_packed_picture_of_another_size_is_refused_without_unpacking_it(content):
    with pytest.raises(PictureError):
        decode_lossless(content, (48, 64, 3))


@pytest.mark.parametrize("shape", [(1 << 20, 1 << 20, 3), (0, 4, 3), (-1, 4, 3), (4, 4)])
def test_sizes_that_no_camera_has_are_refused(shape):
    with pytest.raises(PictureError, match="not possible"):
        decode_lossless(bomb(4), shape)
    with pytest.raises(PictureError, match="not possible"):
        decode_jpeg(b"", shape)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_pictures_come_back_close_and_the_right_way_up(channels):
    picture = scene()[:, :, :channels]
    again = decode_jpeg(encode_jpeg(picture, 95), picture.shape)
    assert again.shape == picture.shape
    assert np.abs(again.astype(int) - picture).mean() < 3
    if channels == 3:
        np.testing.assert_allclose(again[20, 45], (230, 20, 40), atol=12)


def test_a_jpeg_of_another_size_is_refused_by_what_it_declares():
    large = io.BytesIO()
    Image.new("RGB", (6000, 6000)).save(large, "JPEG")
    with pytest.raises(PictureError, match=r"says \(6000, 6000\) RGB"):
        decode_jpeg(large.getvalue(), (48, 64, 3))
    with pytest.raises(PictureError, match=r"says \(64, 48\) RGB, where \(48, 64, 1\)"):
        decode_jpeg(encode_jpeg(scene(), 90), (48, 64, 1))


def test_other_files_are_no_jpeg():
    png = io.BytesIO()
    Image.fromarray(scene()).save(png, "PNG")
    for content in (png.getvalue(), b"", encode_jpeg(scene(), 90)[:300]):
        with pytest.raises(PictureError, match="no whole JPEG"):
            decode_jpeg(content, (48, 64, 3))


def test_a_codec_survives_json_and_others_are_refused():
    for codec in (PictureCodec(), PictureCodec("jpeg", 80), PictureCodec("av1", 60)):
        assert PictureCodec.from_json(codec.to_json()) == codec
    assert PictureCodec("jpeg").fitting((4, 4, 4)) == PictureCodec("lossless")
    with pytest.raises(ValueError, match="'gif'"):
        PictureCodec("gif")
    with pytest.raises(ValueError, match="quality is 0"):
        PictureCodec("jpeg", 0)
    with pytest.raises(ValueError, match="colour"):
        PictureCodec.from_json({"colour": 1})


def test_only_8_bit_pictures_with_channels_are_pictures():
    assert is_picture(scene())
    assert not is_picture(scene()[:, :, 0])
    assert not is_picture(scene().astype(np.uint16))
    assert not is_picture(np.zeros((4, 0, 3), np.uint8))
