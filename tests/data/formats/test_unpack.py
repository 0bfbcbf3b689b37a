import bz2
import gzip
import lzma
import zlib

import numcodecs
import pytest

from data.errors import DatasetError
from data.formats.limits import Budget
from data.formats.unpack import UnpackError, unpack, zstd_size

CONTENT = bytes(range(256)) * 3
PACKED = {
    "": CONTENT,
    "blosc": numcodecs.Blosc().encode(CONTENT),
    "zstd": numcodecs.Zstd().encode(CONTENT),
    "lz4": numcodecs.LZ4().encode(CONTENT),
    "zlib": zlib.compress(CONTENT),
    "gzip": gzip.compress(CONTENT),
    "bz2": bz2.compress(CONTENT),
    "lzma": lzma.compress(CONTENT),
}


@pytest.mark.parametrize("codec", PACKED)
def test_only_the_expected_size_is_unpacked(codec):
    assert unpack(PACKED[codec], codec, 768) == CONTENT
    for size in (767, 769, 1, 10**7):
        with pytest.raises(UnpackError):
            unpack(PACKED[codec], codec, size)
    for broken in (PACKED[codec][:-9], PACKED[codec][:3], b""):
        with pytest.raises(UnpackError):
            unpack(broken, codec, 768)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 70_000])
def test_the_size_in_a_zstandard_header_is_read(size):
    assert zstd_size(numcodecs.Zstd().encode(bytes(size)) if size else b"\x28\xb5\x2f\xfd\x20\x00") == size
    with pytest.raises(UnpackError, match="no Zstandard frame"):
        zstd_size(b"PK\x03\x04 and so on")


def test_a_budget_is_spent_once_and_counts_huge_shapes_without_overflow():
    budget = Budget(100, "here")
    budget.spend(60, "one")
    with pytest.raises(DatasetError, match="here: two unfolds to 41 bytes"):
        budget.spend(41, "two")
    budget.spend(40, "three")
    import numpy as np

    with pytest.raises(DatasetError, match="unfolds to 79228162514264337593543950336 bytes"):
        Budget(1 << 60, "here").spend_array((1 << 62, 1 << 31), np.dtype("float64"), "array")
    with pytest.raises(DatasetError, match="sizes cannot be negative"):
        Budget(1 << 60, "here").spend_array((4, -1), np.dtype("float64"), "array")
    with pytest.raises(ValueError, match="max_decoded_bytes is 0"):
        Budget(0, "here")
