"""The client of a policy server, against servers that misbehave."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest
import torch
from websockets.sync.server import serve

from policies import wire
from policies.connection import Connection, Timeouts
from policies.errors import PolicyAwayError, PolicyError
from policies.remote import RemotePolicy
from policies.request import ChunkRequest
from robot_rl.refiner import Refiner
from robot_rl.serve.engine import Client, Engine
from tests.robot_rl.serve.served import GatedPolicy


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Connecting takes long where many tests run at once."""
    monkeypatch.setattr("policies.remote.STALE_S", 60.0)


@contextmanager
def server(talk):
    """A server at a free port that does what `talk` says with each connection."""
    with serve(talk, "127.0.0.1", 0, compression=None, max_size=None) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{listening.socket.getsockname()[1]}"
        finally:
            listening.shutdown()
            thread.join(30)


def engine(policy=None):
    return Engine(policy or GatedPolicy(), Refiner(), most_rows=8, most_bytes=1_000_000)


def answering(change=lambda reply: [reply], served=None):
    """Talks as the real server, but sends what `change` makes of each reply."""
    served = served or engine()

    def talk(connection):
        connection.send(served.hello())
        for data in connection:
            for reply in change(wire.unpack(served.answer(Client(1), data, 0.0))):
                connection.send(reply if isinstance(reply, bytes | str) else wire.pack(reply))

    return talk


def request(value=1.0):
    return ChunkRequest({"observation.state": torch.full((1, 1, 2), value)})


NOISE = torch.zeros(1, 4, 2)


def test_an_answer_to_an_earlier_request_is_dropped():
    def late(reply):
        stale = {**reply, "id": reply["id"] - 1, "chunk": reply["noise"]}
        return [stale, {**stale, "kind": "error", "what": "request", "because": "late"}, reply]

    with server(answering(late)) as address, RemotePolicy(address) as policy:
        for value in (1.0, 2.0):
            assert policy.chunk(request(value), NOISE).unique().item() == value


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda reply: [{**reply, "id": reply["id"] + 1}], "answers request 1"),
        (lambda reply: [{**reply, "kind": "weights"}], "'weights' 1 answers"),
        (lambda reply: [{**reply, "base": "x"}], "of another policy than the one that was announced"),
        (lambda reply: [{**reply, "chunk": reply["info"]}], "chunk is a map"),
        (lambda reply: [{key: value for key, value in reply.items() if key != "noise"}], "KeyError"),
        (lambda reply: ["text"], "a text message came"),
        (lambda reply: [b"\xc1"], "no msgpack"),
    ],
)
def test_an_answer_that_is_none_is_an_error_and_the_next_call_connects_again(change, why):
    replies = []

    def once(reply):
        replies.append(reply)
        return change(reply) if len(replies) == 1 else [reply]

    with server(answering(once)) as address, RemotePolicy(address) as policy:
        with pytest.raises(PolicyError, match=why) as found:
            policy.chunk(request(), NOISE)
        assert not isinstance(found.value, PolicyAwayError)
        assert policy.chunk(request(), NOISE).shape == (1, 4, 2)


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        ("hello", r"is no `robot-rl serve`"),
        (wire.pack({"kind": "hello"}), "is no `robot-rl serve`: KeyError"),
        (
            wire.pack({**wire.unpack(engine().hello()), "protocol": 2}),
            "speaks protocol 2; this",
        ),
        (wire.pack({**wire.unpack(engine().hello()), "spec": {}}), "describes no policy"),
        (
            wire.pack({**wire.unpack(engine().hello()), "keys": ["observation.goal"]}),
            "reads observ",
        ),
    ],
)
def test_a_server_of_another_kind_is_refused(greeting, why):
    left = threading.Event()

    def talk(connection):
        connection.send(greeting)
        for _ in connection:
            pass
        left.set()

    with server(talk) as address:
        with pytest.raises(PolicyError, match=why):
            RemotePolicy(address)
        assert left.wait(60)  # the connection is closed, not left to the garbage collector


@pytest.mark.parametrize("keys", [["observation.state"], ["observation.state", "task"]])
def test_the_text_is_read_if_the_guidance_over_there_reads_it(keys):
    greeting = wire.pack({**wire.unpack(engine().hello()), "keys": keys})

    def talk(connection):
        connection.send(greeting)
        connection.recv()

    with server(talk) as address:
        policy = RemotePolicy(address)
        assert policy.spec.reads_task == ("task" in keys)
        policy.close()


def test_a_lost_connection_is_opened_again_by_the_next_call():
    count = []

    def drops(connection):
        count.append(1)
        connection.send(engine().hello())
        if len(count) == 1:
            connection.recv()
            return
        answering()(_WithoutGreeting(connection))

    with server(drops) as address, RemotePolicy(address) as policy:
        with pytest.raises(PolicyAwayError, match="the connection was lost") as found:
            policy.chunk(request(), NOISE)
        assert found.value.because.startswith("the policy's server is away: the connection was lost")
        policy._connection._not_before = 0.0
        assert policy.chunk(request(), NOISE).shape == (1, 4, 2)
    assert len(count) == 2


class _WithoutGreeting:
    """A connection whose first message was sent already."""

    def __init__(self, connection):
        self._connection, self._greeted = connection, False

    def send(self, data):
        if self._greeted:
            self._connection.send(data)
        self._greeted = True

    def __iter__(self):
        return iter(self._connection)


def test_after_a_failure_the_next_attempt_waits_ever_longer():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"ws://127.0.0.1:{free.getsockname()[1]}"
    connection = Connection(address, lambda data: None, headers={}, timeouts=Timeouts())
    for at_most in (0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0):
        connection._not_before = 0.0
        with pytest.raises(PolicyAwayError, match="no server listens there") as found:
            connection.open()
        assert at_most / 2 < found.value.retry_in_s <= at_most
    connection._not_before += 100.0
    with pytest.raises(PolicyAwayError, match="no server listens there") as found:
        connection.open()  # at once
    assert found.value.retry_in_s > 90.0


def test_an_observation_that_waited_for_a_new_connection_is_not_planned_from(monkeypatch):
    with server(answering()) as address, RemotePolicy(address) as policy:
        policy.chunk(request(), NOISE)
        monkeypatch.setattr(policy._connection, "open", lambda: 60.1)
        with pytest.raises(PolicyAwayError, match=r"connected again after 60\.1 s"):
            policy.chunk(request(), NOISE)


def test_episodes_begin_with_the_next_chunk():
    came = []

    class Listens(Engine):
        def answer(self, client, data, arrived):
            came.append(wire.unpack(data)["begins"])
            return super().answer(client, data, arrived)

    served = Listens(GatedPolicy(), Refiner(), most_rows=8, most_bytes=1_000_000)
    with server(answering(served=served)) as address, RemotePolicy(address) as policy:
        policy.begin_episode(["a", "b"])
        for _ in range(2):
            policy.chunk(request(), NOISE)
    assert came == [["a", "b"], []]


@pytest.mark.parametrize("name", ["connect", "answer", "dead"])
def test_impossible_timeouts_are_refused(name):
    with pytest.raises(ValueError, match=f"timeout {name} is 0"):
        Timeouts(**{name: 0})
