"""Messages survive the way, and what is none is refused with what and why."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import wire
from policies.wire import WireError, pack, read_array, read_texts, unpack


@pytest.mark.parametrize("dtype", wire.DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 1)])
def test_arrays_survive(dtype, shape):
    array = (np.arange(int(np.prod(shape))) % 2).astype(dtype).reshape(shape)
    found = read_array(unpack(pack({"a": array}))["a"], "a")
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


def test_arrays_that_are_not_contiguous_or_of_other_byte_order_survive():
    array = np.arange(12, dtype=">f4").reshape(3, 4)[::2, ::-1]
    np.testing.assert_array_equal(read_array(unpack(pack({"a": array}))["a"], "a"), array)


@pytest.mark.parametrize(
    "value", [np.array([object()]), np.array([1j]), np.array(["text"]), object(), np.zeros(1, "M8[s]")]
)
def test_what_is_no_number_is_not_sent(value):
    with pytest.raises(TypeError, match="cannot be sent"):
        pack({"a": value})
    assert unpack(pack({"b": 1})) == {"b": 1}  # nothing is left of the one before


DEEP = b"\x91" * 100_000
MANY = msgpack.packb({"a": [[]] * (wire.MOST_CONTAINERS + 1)})
LONG = msgpack.packb({"a": [None] * (wire.MOST_ITEMS + 1)})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("text", "a text message"),
        (b"", "of 0 bytes is no msgpack"),
        (b"\xc1", "no msgpack"),
        (b"GET / HTTP/1.1\r\n", "no msgpack"),
        (b"\x81\xa1a", "no msgpack"),
        (msgpack.packb([1, 2]), "is a value of type list; it must be a map"),
        (msgpack.packb({1: 2}), "no msgpack within the limits"),
        (b"\x81\xa1a\xa1\xff", "no msgpack"),
        (msgpack.packb({"a": msgpack.ExtType(5, b"x")}), "extension type 5"),
        (msgpack.packb({"a": msgpack.Timestamp(0)}), "extension|Timestamp|no msgpack|a value"),
        (DEEP, "no msgpack"),
        (MANY, "lists and maps"),
        (LONG, "no msgpack within the limits"),
        (b"\xdd\xff\xff\xff\xff", "no msgpack"),
        (b"\x80" + b"\x80", "no msgpack"),
    ],
)
def test_what_is_no_message_is_refused(data, why):
    if data == msgpack.packb({"a": msgpack.Timestamp(0)}):
        with pytest.raises(WireError, match="texts"):
            read_texts(unpack(data)["a"], "a")
        return
    with pytest.raises(WireError, match=why):
        unpack(data)


def test_a_message_that_is_too_large_is_refused():
    data = pack({"a": np.zeros(1000, np.uint8)})
    assert unpack(data, len(data))
    with pytest.raises(WireError, match=rf"has {len(data):,} bytes; at most 1,000 are read"):
        unpack(data, 1000)


GOOD = {"dtype": "float32", "shape": [2], "data": bytes(8)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "object"}, "dtype 'object'; allowed: bool"),
        ({"dtype": "O"}, "dtype 'O'"),
        ({"dtype": "<f4"}, "dtype '<f4'"),
        ({"dtype": 3}, "dtype 3"),
        ({"shape": [3]}, "comes with 8 bytes; 12 bytes are expected"),
        ({"shape": [-2]}, r"shape \[-2\]"),
        ({"shape": [2**40, 2**40]}, "8 bytes; 4835703278458516698824704 bytes"),
        ({"shape": [True, 2]}, r"shape \[True, 2\]"),
        ({"shape": [2.0]}, r"shape \[2.0\]"),
        ({"shape": 2}, "shape 2"),
        ({"shape": [1] * 9}, "at most 8 sizes"),
        ({"data": "12345678"}, "comes with a value of type str"),
        ({"data": bytes(7)}, "7 bytes"),
        ({"more": 1}, "a map of"),
    ],
)
def test_what_is_no_array_is_refused(change, why):
    assert read_array(GOOD, "x").shape == (2,)
    with pytest.raises(WireError, match=f"x .*{why}"):
        read_array(GOOD | change, "x")
    with pytest.raises(WireError, match="x is nothing; an array is a map"):
        read_array(None, "x")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data):
    try:
        message = unpack(data)
    except WireError:
        return
    for entry in message.values():
        try:
            read_array(entry, "x")
        except WireError:
            continue
