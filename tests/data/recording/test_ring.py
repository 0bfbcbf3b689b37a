import contextlib
import os
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.recording.messages import (
    below,
    chunk_from,
    chunk_parts,
    decode,
    encode,
    prefixed,
    step_from,
    step_parts,
)
from data.recording.ring import RingReceiver, RingSender
from data.steps import Chunk, Source, Step


@contextlib.contextmanager
def pair(size):
    sender = RingSender(size)
    handles = [os.dup(handle) for handle in sender.child_handles]
    sender.hand_over()
    receiver = RingReceiver(*handles, size)
    yield sender, receiver
    receiver.close()
    os.close(handles[0])


@settings(max_examples=40)
@given(st.lists(st.tuples(st.binary(max_size=60), st.booleans()), max_size=60))
def test_every_message_that_was_taken_arrives_whole_and_in_order(sent):
    with pair(200) as (sender, receiver):
        arriving = iter(receiver)
        waiting, arrived, taken = 0, [], []
        for content, receive in sent:
            if sender.send([content[:3], content[3:]]):
                taken.append(content)
                waiting += 1
            if receive and waiting:
                arrived.append(bytes(next(arriving)))
                waiting -= 1
        sender.close()
        arrived += [bytes(message) for message in arriving]
        assert arrived == taken


def test_what_does_not_fit_is_refused_until_something_was_read():
    with pair(100) as (sender, receiver):
        assert sender.send([b"a" * 60])
        assert not sender.send([b"b" * 60])
        arriving = iter(receiver)
        assert bytes(next(arriving)) == b"a" * 60
        assert sender.waiting == 60
        assert sender.send([b"c" * 30])
        assert bytes(next(arriving)) == b"c" * 30  # asking for the next gives the room of the one before back
        assert sender.send([b"d" * 60])
        with pytest.raises(ValueError, match="101 bytes can never fit"):
            sender.send([b"e" * 101])
        sender.close()
        assert [bytes(message) for message in arriving] == [b"d" * 60]


def test_room_is_spared_for_what_matters_more():
    with pair(100) as (sender, receiver):
        assert not sender.send([b"a" * 60], spare=41)
        assert sender.send([b"a" * 60], spare=40)
        assert not sender.send([b"b"], spare=40)
        assert sender.send([b"c" * 40])
        sender.close()
        assert [bytes(message) for message in receiver] == [b"a" * 60, b"c" * 40]


def test_many_small_messages_fill_the_queue_too():
    with pair(1 << 20) as (sender, receiver):
        count = 0
        while sender.send([b"x"]):
            count += 1
        assert count == 16384
        sender.close()
        assert sum(1 for _ in receiver) == count


def test_the_sender_does_not_stall_however_many_messages_fit_the_ring():
    with pair(64 << 20) as (sender, receiver):
        read = threading.Thread(target=lambda: [None for _ in receiver])
        read.start()
        end = time.monotonic() + 60
        for _ in range(60_000):  # more than both pipes hold together
            while not sender.send([b"x"]):
                assert time.monotonic() < end
                time.sleep(1e-4)
        sender.close()
        read.join()


def test_an_empty_ring_takes_whatever_is_not_larger_than_it():
    with pair(100) as (sender, receiver):
        assert sender.send([b"a" * 60])
        assert not sender.send([b"b" * 80])
        read = []
        reader = threading.Thread(target=lambda: read.extend(bytes(message) for message in receiver))
        reader.start()
        while sender.waiting:
            time.sleep(1e-4)
        assert sender.send([b"b" * 80])
        sender.close()
        reader.join()
        assert read == [b"a" * 60, b"b" * 80]


def test_a_full_ring_whose_receiver_is_gone_is_an_error():
    sender = RingSender(100)
    assert sender.send([b"a" * 60])
    sender.hand_over()
    with pytest.raises(BrokenPipeError, match="gone"):
        sender.send([b"b" * 60])
    sender.close()


def round_trip(kind, facts, arrays):
    return decode(memoryview(b"".join(bytes(part) for part in encode(kind, facts, arrays))))


def test_a_step_arrives_as_it_was():
    step = Step(
        action=np.array([0.1, np.nan]),
        action_intended=np.array([np.inf, -0.0]),
        reward=np.float32(0.1),
        source=Source.HUMAN,
        wall_time=1.7e9 + 1 / 3,
        monotonic_time=float("nan"),
    )
    facts, arrays = step_parts(step)
    rows = prefixed("observation", {"a.b": np.arange(6, dtype=np.uint8).reshape(2, 3), "e": np.zeros((0, 2))})
    kind, facts, arrays = round_trip("step", facts, arrays | rows)
    again = step_from(facts, arrays)
    assert kind == "step"
    np.testing.assert_array_equal(again.action, step.action)
    np.testing.assert_array_equal(np.signbit(again.action_intended), [False, True])
    assert again.action_base is None
    assert again.reward == np.float64(np.float32(0.1))
    assert again.wall_time == step.wall_time
    assert np.isnan(again.monotonic_time)
    assert again.source == Source.HUMAN
    found = below("observation", arrays)
    np.testing.assert_array_equal(found["a.b"], [[0, 1, 2], [3, 4, 5]])
    assert found["e"].shape == (0, 2)


def test_a_plan_arrives_as_it_was():
    chunk = Chunk(3, 4, np.arange(6.0).reshape(2, 3).T, None, 1, np.zeros((2, 3, 2)), 1)
    _, facts, arrays = round_trip("chunk", *chunk_parts(chunk))
    again = chunk_from(facts, arrays)
    np.testing.assert_array_equal(again.actions, chunk.actions)
    assert (again.id, again.first_step, again.delay, again.index) == (3, 4, 1, 1)
    assert again.noise is None
    assert again.candidates.shape == (2, 3, 2)


def test_objects_are_refused():
    with pytest.raises(TypeError, match="a is object"):
        encode("stream", {}, {"a": np.array([None])})
