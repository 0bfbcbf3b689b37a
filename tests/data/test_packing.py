import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.packing import pack, unpack_into


@given(st.binary(min_size=1, max_size=70000))
def test_what_was_packed_comes_back_whatever_its_size(content):
    out = np.zeros(len(content), np.uint8)
    unpack_into(pack(np.frombuffer(content, np.uint8)), out)
    assert out.tobytes() == content


@pytest.mark.parametrize("size", [1, 200, 255, 256, 300, 65791, 65792, 1 << 20])
def test_another_size_than_the_room_for_it_is_refused(size):
    content = pack(np.zeros(size, np.uint8))
    unpack_into(content, np.ones(size, np.uint8))
    for other in (size - 1, size + 1):
        with pytest.raises(ValueError, match=f"{size} bytes are packed in it, {other}"):
            unpack_into(content, np.zeros(other, np.uint8))


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04zip", b"\x28\xb5\x2f\xfd\x00\x00", b"\x28\xb5\x2f\xfd\x20\x05"]
)
def test_what_is_not_packed_is_refused(content):
    with pytest.raises(ValueError, match=r"begin|announce|[Zz]std"):
        unpack_into(content, np.zeros(5, np.uint8))
