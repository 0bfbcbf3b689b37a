"""``robot-rl serve`` as a process of its own: tokens, garbage, two clients, kill -9, restart, Ctrl-C."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hardware.clock import WallClock
from policies import wire
from policies.checkpoint import save
from policies.connection import Timeouts
from policies.errors import PolicyAwayError, PolicyError
from policies.loading import load
from policies.remote import RemotePolicy, RemoteSettings
from policies.request import ChunkRequest
from robot_rl.cli import main
from robot_rl.control import ControlLoop, run_wave
from robot_rl.parts import save_refiner
from robot_rl.planner import BackgroundPlanner
from robot_rl.refiner import Refiner
from robot_rl.serve.config import ServeConfig, is_loopback, read_token, shows_token
from tests.robot_rl.scripted import CountingEnv
from tests.robot_rl.serve.served import Double, GatedPolicy, SavedShift, entered, make_gate, serving, until

pytestmark = pytest.mark.timeout(400)
TOKEN = "0123456789abcdef-test"
ENDLESS = {"endless": True}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One server for the tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("served")
    gate = make_gate(tmp_path_factory.mktemp("gate"))
    policy = GatedPolicy(str(gate), seconds=0.004)  # slow enough to be computed beside the event loop
    save(policy, folder / "policy")
    double = Refiner(noise=Double(), base_hash=policy.hash())
    version = save_refiner(folder / "double", double).version
    words = ("--refiner", str(folder / "double"), "--megabytes", "1", "--clients", "3")
    with serving(folder / "policy", *words, log=folder / "log", token=TOKEN) as server:
        server.gate, server.version, server.folder = gate, version, folder
        yield server
        assert server.process.poll() is None, server.said


@pytest.fixture
def remote(served):
    with RemotePolicy(served.address, RemoteSettings(token=TOKEN)) as policy:
        yield policy


def request(*state, rows=1):
    values = torch.tensor(state or (0.5, 0.25), dtype=torch.float32)
    return ChunkRequest(
        {"observation.state": values.repeat(rows, 1, 1)}, episode_ids=tuple("abcdefgh"[:rows])
    )


def noise(rows=1):
    return torch.arange(8.0).reshape(1, 4, 2).repeat(rows, 1, 1)


def raw(address, token=TOKEN, **options):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return connect(address, additional_headers=headers, proxy=None, max_size=None, **options)


def health(address):
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=10):
        pass
    client = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    try:
        client.request("GET", "/healthz")
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        client.close()


# --- a policy elsewhere is a policy


def test_a_policy_elsewhere_answers_as_one_here_would(served, remote):
    here = GatedPolicy()
    assert remote.spec == here.spec
    assert remote.hash() == here.hash()
    assert remote.refiner_version == served.version
    answer = remote.answer(request(rows=3), noise(3))
    assert torch.equal(answer.noise, 2 * noise(3))
    assert torch.equal(answer.chunk, here.chunk(request(rows=3), 2 * noise(3)))
    assert torch.equal(remote.answer(request(), noise(), deterministic=False).noise, 10 * noise())
    assert torch.equal(remote.chunk(request(), noise()), here.chunk(request(), 2 * noise()))
    latency = remote.latency
    assert latency.count == 3
    assert 0 < latency.server < latency.median <= latency.worst


def test_the_loop_records_what_the_server_added(served, remote):
    (episode,) = run_wave([CountingEnv()], [3], remote, options=ENDLESS)
    (plain,) = run_wave([CountingEnv()], [3], GatedPolicy(), Refiner(noise=Double()), options=ENDLESS)
    np.testing.assert_array_equal(episode.action, plain.action)
    np.testing.assert_array_equal(episode.chunks[0].noise, plain.chunks[0].noise)
    assert (episode.base_version, episode.refiner_version) == (GatedPolicy().hash(), served.version)


def test_an_address_is_loaded_as_any_policy(served, monkeypatch):
    monkeypatch.setenv("ROBOT_RL_TOKEN", TOKEN)
    policy = load(Path(served.address))  # the command line makes paths of words
    assert isinstance(policy, RemotePolicy)
    policy.close()
    with pytest.raises(TypeError, match="has no option 'revision'"):
        load(served.address, revision="main")


# --- what the server refuses


@pytest.mark.parametrize("token", [None, "0123456789abcdef-tesT", "", "Bearer", "ä" * 20])
def test_nobody_gets_in_without_the_token(served, token, monkeypatch):
    monkeypatch.delenv("ROBOT_RL_TOKEN", raising=False)
    if token is None or token.isascii():
        with pytest.raises(PolicyError, match=r"refuses with 401: wrong or no token .*ROBOT_RL_TOKEN"):
            RemotePolicy(served.address, RemoteSettings(token=token))
    else:
        assert not shows_token(f"Bearer {token}", TOKEN.encode())
    served.wait_for("turned away .* wrong or no token")


def test_health_is_open_to_monitors(served):
    status, said = health(served.address)
    assert status == 200
    assert (said["status"], said["protocol"]) == ("ok", 1)


def test_a_page_in_a_browser_does_not_get_in(served):
    with pytest.raises(InvalidStatus, match="403"), raw(served.address, origin="https://example.org"):
        pass


def test_garbage_is_answered_with_why_and_the_connection_goes_on(served):
    with raw(served.address) as client:
        client.recv()
        large = wire.pack({"a": np.zeros(1_500_000, np.uint8)})
        nan = {"observation.state": np.full((1, 1, 2), np.nan, np.float32)}
        cases = {
            "a text message came": "text",
            "is no msgpack within the limits": b"\xc1\x00",
            "at most 1,000,000 are read": large,
            "kind is 'None'": wire.pack({}),
            "every number must be finite": wire.pack({"kind": "chunk", "id": 1, "observation": nan}),
            "the request holds '__reduce__'": wire.pack({"kind": "chunk", "id": 1, "__reduce__": "x"}),
        }
        for why, data in cases.items():
            client.send(data)
            reply = wire.unpack(client.recv(30))
            assert (reply["kind"], reply["what"]) == ("error", "request")
            assert why in reply["because"]
        state = np.zeros((1, 1, 2), np.float32)
        client.send(wire.pack({"kind": "chunk", "id": 9, "observation": {"observation.state": state}}))
        assert wire.unpack(client.recv(30))["id"] == 9
    served.wait_for("left after 1 chunks, 6 refused")


def test_what_is_beyond_all_limits_ends_that_connection_only(served, remote):
    with raw(served.address) as client:
        client.recv()
        client.send(bytes(2_000_001))
        with pytest.raises(Exception, match="1009"):
            client.recv(30)
    assert remote.chunk(request(), noise()).shape == (1, 4, 2)


def test_a_policy_that_fails_is_no_lost_connection(served, remote):
    with pytest.raises(PolicyError, match="out of memory, say") as found:
        remote.chunk(request(8.0, 8.0), noise())
    assert not isinstance(found.value, PolicyAwayError)
    with pytest.raises(PolicyError, match=r"breaks the protocol: the chunk is .* finite is expected"):
        remote.chunk(request(9.0, 9.0), noise())
    with pytest.raises(ValueError, match=r"noise is float32 \(1, 3, 2\)"):
        remote.chunk(request(), noise()[:, :3])
    with pytest.raises(ValueError, match="lacks"):
        remote.chunk(ChunkRequest({"observation.x": torch.zeros(1, 1)}), noise())
    assert remote.chunk(request(), noise()).shape == (1, 4, 2)


# --- several clients, and a slow server


def test_while_one_client_waits_health_answers_and_the_others_queue(served, remote):
    found = []
    settings = RemoteSettings(token=TOKEN)
    with RemotePolicy(served.address, settings) as slow, RemotePolicy(served.address, settings) as third:
        with pytest.raises(PolicyAwayError, match="no place left") as full:
            RemotePolicy(served.address, settings)
        assert full.value.retry_in_s > 0
        waits = threading.Thread(target=lambda: found.append(slow.chunk(request(7.0, 7.0), noise())))
        waits.start()
        entered(served.gate)
        others = [
            threading.Thread(target=lambda who=who: found.append(who.chunk(request(), noise())))
            for who in (remote, third)
        ]
        for other in others:
            other.start()
        until(lambda: health(served.address)[1]["waiting"] == 3, "three wait")
        (served.gate / "go").write_bytes(b"x")
        for thread in (waits, *others):
            thread.join(30)
        assert sorted(float(chunk[0, 0, 0]) for chunk in found) == [0.5, 0.5, 7.0]


def test_an_answer_that_comes_too_late_is_never_used(served):
    timeouts, late = Timeouts(answer=4.0), []
    with RemotePolicy(served.address, RemoteSettings(token=TOKEN, timeouts=timeouts)) as policy:

        def ask():
            with pytest.raises(PolicyAwayError, match=r"no answer within 4 s") as found:
                policy.chunk(request(7.0, 7.0), noise())
            late.append(found.value)

        asks = threading.Thread(target=ask)
        asks.start()
        entered(served.gate)
        asks.join(30)
        assert late[0].because == "the policy's server is away: no answer within 4 s"
        (served.gate / "go").write_bytes(b"x")

        def again():
            try:
                return policy.chunk(request(1.0, 1.0), noise())
            except PolicyAwayError:
                return None

        chunk = until(lambda: (found := again()) is not None and [found], "an answer")[0]
        assert float(chunk[0, 0, 0]) == 1.0


# --- a server that is lost


def test_a_killed_server_makes_the_robot_hold_and_go_on_after_the_restart(tmp_path):
    """Killed with -9 in the middle of a request; started again at the same port while the loop runs."""
    gate = make_gate(tmp_path)
    save(GatedPolicy(str(gate)), tmp_path / "policy")
    states, held, killed, enough = [], [], threading.Event(), threading.Event()

    class Env(CountingEnv):
        max_steps = 1_000_000

        def _observe(self):
            seven = self.steps >= 4 and not killed.is_set()  # for which the policy waits at the gate
            return super()._observe() | {"observation.state": np.full(2, 7.0 if seven else 0.0, np.float32)}

        def step(self, action):
            observation, reward, ended, _, info = super().step(action)
            states.append(self.steps)
            return observation, reward, ended, enough.is_set(), info

    def in_between():
        entered(gate)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        killed.set()
        held.append(len(states))
        until(lambda: len(states) > held[0] + 20, "the loop goes on")
        with serving(tmp_path / "policy", log=tmp_path / "log2", port=port) as second:
            second.wait_for("client 1 connected")
            answered = len(states)
            until(lambda: len(states) > answered + 20, "the loop goes on")
            enough.set()
            drives.join(30)
            assert not drives.is_alive()

    episodes = []
    with serving(tmp_path / "policy", log=tmp_path / "log1") as first:
        port = urlsplit(first.address).port
        policy = RemotePolicy(first.address)

        def drive():
            with BackgroundPlanner(10.0) as planner:
                loop = ControlLoop([Env()], policy, planner=planner, clock=WallClock())
                episodes.extend(loop.run([0], options=ENDLESS))

        drives = threading.Thread(target=drive)
        drives.start()
        in_between()
    policy.close()
    (episode,) = episodes
    paused = np.flatnonzero(episode.source == "paused")
    np.testing.assert_array_equal(episode.action[paused], 0.0)
    again = next(chunk for chunk in episode.chunk_id[paused[0] :] if chunk >= 0)
    asked_at = next(chunk.first_step for chunk in episode.chunks if chunk.id == again)
    assert asked_at >= held[0]  # planned from what was seen after the server was lost


def test_another_policy_at_the_same_address_is_refused(tmp_path):
    save(GatedPolicy(), tmp_path / "one")
    other = GatedPolicy()
    other.action += 1
    save(other, tmp_path / "two")
    with serving(tmp_path / "one", log=tmp_path / "log1") as first:
        port = urlsplit(first.address).port
        policy = RemotePolicy(first.address)
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(30) == 0
        assert "stopping; 0 requests were answered" in first.said
        assert "Traceback" not in first.said

    with pytest.raises(PolicyAwayError, match="gives no chunk: the connection was lost"):
        policy.chunk(request(), noise())
    with serving(tmp_path / "two", log=tmp_path / "log2", port=port):
        assert "serves another policy" in until(lambda: _answers(policy), "an answer")
    policy.close()


def _answers(policy):
    try:
        policy.chunk(request(), noise())
    except PolicyAwayError:
        return ""
    except PolicyError as error:
        return str(error)
    return "the same"


# --- what is refused before anything listens


def test_other_machines_need_a_token(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("ROBOT_RL_TOKEN", raising=False)
    for host in ("0.0.0.0", "192.168.1.5", "gpu-box", "::"):
        with pytest.raises(ValueError, match=r"where other machines can connect, and there is no token"):
            read_token(ServeConfig(tmp_path, host=host))
    assert [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "0.0.0.0")] == [True] * 3 + [
        False
    ]
    assert read_token(ServeConfig(tmp_path)) == b""
    assert main(["serve", "--policy", str(tmp_path), "--host", "0.0.0.0"]) == 1
    assert "there is no token" in capsys.readouterr().err
    file = tmp_path / "token"
    for text, why in (
        ("", "is empty"),
        ("short", "at least 16"),
        ("with a space in the middle", "at least 16"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=why):
            read_token(ServeConfig(tmp_path, host="0.0.0.0", token_file=file))
    file.write_text(f"{TOKEN}\n")
    assert read_token(ServeConfig(tmp_path, host="0.0.0.0", token_file=file)) == TOKEN.encode()


def test_a_corrector_is_named_and_sent_to_the_robot(tmp_path, capsys):
    save(GatedPolicy(), tmp_path / "policy")
    save_refiner(tmp_path / "shift", Refiner(correct=SavedShift()))
    words = [
        "serve",
        "--policy",
        str(tmp_path / "policy"),
        "--refiner",
        str(tmp_path / "shift"),
        "--port",
        "0",
    ]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "corrects actions (SavedShift)" in said
    assert "--policy ws://HOST:PORT --refiner" in said


@pytest.mark.parametrize(
    "changes", [{"port": -1}, {"port": 70_000}, {"rows": 0}, {"clients": 0}, {"megabytes": 0}]
)
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        ServeConfig(Path(), **changes)


def test_no_server_is_said_in_one_sentence():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PolicyAwayError, match="no server listens there"):
        RemotePolicy(f"ws://127.0.0.1:{port}")
    with pytest.raises(ValueError, match="is no address"):
        RemotePolicy("http://127.0.0.1")
