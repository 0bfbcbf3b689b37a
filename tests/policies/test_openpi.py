"""Policies behind servers that follow openpi's protocol, against a small one, and against its own client."""

from __future__ import annotations

import json
import threading

import msgpack
import numpy as np
import pytest
import torch
from websockets.sync.server import serve

from data.features import Feature
from policies.checkpoint import CheckpointError
from policies.connection import Timeouts
from policies.errors import PolicyAwayError, PolicyError
from policies.loading import load
from policies.openpi import OpenPiPolicy, OpenPiSettings, with_bars
from policies.openpi_wire import pack, unpack
from policies.request import ChunkRequest
from tests.robot_rl.scripted import SPEC

FEATURES = {
    "observation.state": Feature((2,), "float32", "m"),
    "observation.images.front": Feature((6, 4, 3), "uint8"),
}
KEYS = {
    "observation.state": "observation/state",
    "observation.images.front": "observation/image",
    "task": "prompt",
}
SETTINGS = OpenPiSettings(KEYS, horizon=3, image_size=8, features=FEATURES, action_spec=SPEC)


class Server:
    """Answers every observation with the state in each of three actions, and remembers what came."""

    def __init__(self):
        self.came, self.headers, self.answer = [], [], None
        self.metadata = {"name": "pi-test"}

    def talk(self, connection):
        self.headers.append(connection.request.headers.get("Authorization"))
        connection.send(pack(self.metadata))
        for data in connection:
            observation = unpack(data)
            self.came.append(observation)
            if observation["prompt"] == "fail":
                connection.send("Traceback ...\nRuntimeError: out of memory")
                return
            if observation["prompt"] == "silence":
                continue
            actions = np.tile(observation["observation/state"].astype(np.float64), (3, 1))
            connection.send(pack({"actions": actions} if self.answer is None else self.answer))


@pytest.fixture
def server():
    made = Server()
    with serve(made.talk, "127.0.0.1", 0, compression=None, max_size=None) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        made.port = listening.socket.getsockname()[1]
        made.address = f"ws://127.0.0.1:{made.port}"
        yield made
        listening.shutdown()
        thread.join(30)


@pytest.fixture
def policy(server):
    made = OpenPiPolicy(server.address, SETTINGS)
    yield made
    made.close()


def request(task="open", rows=1):
    state = torch.arange(2.0 * rows).reshape(rows, 1, 2)
    front = torch.full((rows, 1, 6, 4, 3), 200, dtype=torch.uint8)
    return ChunkRequest(
        {"observation.state": state, "observation.images.front": front, "task": [task] * rows}
    )


def test_each_row_is_asked_for_under_the_servers_names(server, policy):
    chunk = policy.chunk(request(rows=2))
    assert chunk.tolist() == [[[0.0, 1.0]] * 3, [[2.0, 3.0]] * 3]
    assert chunk.dtype == torch.float32
    first = server.came[0]
    assert first.keys() == {"observation/state", "observation/image", "prompt"}
    assert (first["observation/image"].shape, first["prompt"]) == ((8, 8, 3), "open")
    assert first["observation/state"].dtype == np.float32
    assert policy.metadata == {"name": "pi-test"}
    assert (policy.spec.horizon, policy.spec.executed_steps, policy.spec.reads_task) == (3, 3, True)
    assert not policy.spec.supports.noise


def test_what_the_server_says_when_it_fails_is_told_and_the_next_call_connects_again(server, policy):
    with pytest.raises(PolicyError, match="failed: RuntimeError: out of memory"):
        policy.chunk(request("fail"))
    assert policy.chunk(request()).shape == (1, 3, 2)
    assert len(server.headers) == 2


def test_silence_is_a_policy_that_is_away(server):
    from dataclasses import replace

    policy = OpenPiPolicy(server.address, replace(SETTINGS, timeouts=Timeouts(answer=0.2, dead=60.0)))
    with pytest.raises(PolicyAwayError, match=r"no answer within 0\.2 s"):
        policy.chunk(request("silence"))
    policy.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"actions": np.zeros((4, 2))}, r"actions \(4, 2\); \(3, 2\) is expected"),
        ({"actions": np.zeros((3, 32))}, r"actions \(3, 32\)"),
        ({"state": 1}, r"actions only \['state'\]"),
        ({"actions": np.full((3, 2), np.nan)}, "not finite"),
    ],
)
def test_actions_that_do_not_fit_are_refused(server, policy, answer, why):
    server.answer = answer
    with pytest.raises(PolicyError, match=why):
        policy.chunk(request())


def test_what_is_not_said_is_asked_for(server):
    with pytest.raises(
        CheckpointError, match=r"keys=\{our key: its name\}, horizon=H, default_action_spec=\.\.\."
    ):
        load(f"openpi://127.0.0.1:{server.port}")
    with pytest.raises(CheckpointError, match=r"to be said: default_features of observation\.state"):
        load(f"openpi://127.0.0.1:{server.port}", keys=KEYS, horizon=3, default_action_spec=SPEC)


def test_noise_is_refused(policy):
    with pytest.raises(ValueError, match="neither noise nor a condition"):
        policy.chunk(request(), torch.zeros(1, 3, 2))


def test_a_folder_may_stand_for_a_server(server, tmp_path):
    said = {"address": server.address, "keys": KEYS, "horizon": 3, "executed_steps": 2, "api_key": "secret"}
    (tmp_path / "openpi.json").write_text(json.dumps(said))
    policy = load(tmp_path, default_features=FEATURES, default_action_spec=SPEC)
    assert (policy.spec.executed_steps, policy.spec.rate_hz) == (2, 10.0)
    assert server.headers == ["Api-Key secret"]
    policy.close()
    (tmp_path / "openpi.json").write_text(json.dumps(said | {"horizn": 3}))
    with pytest.raises(CheckpointError, match=r"does not describe an openpi server: .*horizn"):
        load(tmp_path)


def test_pictures_keep_their_shape_between_bars():
    picture = np.full((4, 8, 3), 100, np.uint8)
    found = with_bars(picture, 4)
    assert found[:, :, 0].tolist() == [[0] * 4, [100] * 4, [100] * 4, [0] * 4]
    assert with_bars(found, 4) is found


def test_messages_are_those_of_openpis_own_client():
    theirs = pytest.importorskip("openpi_client.msgpack_numpy")
    message = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "b": np.float32(2.5), "c": {"d": ["x", 1]}}
    for packer, unpacker in ((pack, theirs.unpackb), (theirs.packb, unpack), (pack, unpack)):
        found = unpacker(packer(message))
        np.testing.assert_array_equal(found["a"], message["a"])
        assert (found["b"], found["b"].dtype, found["c"]) == (2.5, np.float32, {"d": ["x", 1]})
    assert pack(message) == theirs.packb(message)


def test_nothing_but_numbers_is_read():
    array = {b"__ndarray__": True, b"data": b"12345678", b"dtype": "|O", b"shape": [1]}
    with pytest.raises(ValueError, match="an array of object is refused"):
        unpack(msgpack.packb({"actions": array}))
    with pytest.raises(TypeError, match="no place in a message"):
        pack({"a": np.array([object()])})
