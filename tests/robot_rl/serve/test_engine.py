"""What a server answers: the chunks of the loop here, and a reason for every message that is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies import wire
from policies.flow import FlowPolicy
from policies.policy import PolicyError
from policies.request import ChunkRequest
from policies.spec_json import from_json
from robot_rl.planning import plan_request
from robot_rl.refiner import Refiner
from robot_rl.serve.engine import MOST_EPISODES, Client, Engine
from tests.policies.tools import flow_policy
from tests.robot_rl.serve.served import Counts, Double, GatedPolicy, LeastSum


def engine(policy=None, **parts):
    return Engine(policy or GatedPolicy(), Refiner(**parts), most_rows=8, most_bytes=1_000_000)


def message(rows=1, **changes):
    noise = np.random.default_rng(5).normal(size=(rows, 4, 2)).astype(np.float32)
    state = np.arange(2 * rows, dtype=np.float32).reshape(rows, 1, 2)
    names = [f"episode-{row}" for row in range(rows)]
    base = {"kind": "chunk", "id": 3, "observation": {"observation.state": state}, "noise": noise}
    return {**base, "episodes": names, **changes}


def ask(served, sent, client=None):
    data = sent if isinstance(sent, bytes | str) else wire.pack(sent)
    return wire.unpack(served.answer(client or Client(1), data, 0.0))


def refused(served, sent):
    reply = ask(served, sent)
    assert reply["kind"] == "error", reply
    return reply["what"], reply["because"]


def test_a_chunk_comes_with_its_noise_versions_and_times():
    served, sent = engine(), message(rows=3)
    reply = ask(served, sent)
    chunk = wire.read_array(reply["chunk"], "chunk")
    np.testing.assert_array_equal(chunk, sent["noise"] + sent["observation"]["observation.state"])
    np.testing.assert_array_equal(wire.read_array(reply["noise"], "noise"), sent["noise"])
    assert (reply["id"], reply["base"], reply["refiner"]) == (3, GatedPolicy().hash(), "")
    assert reply["timing"]["plan_s"] >= 0


def test_the_greeting_describes_the_policy():
    hello = wire.unpack(engine(version_free := GatedPolicy()).hello())
    assert (hello["kind"], hello["protocol"], hello["keys"]) == ("hello", 1, ["observation.state"])
    assert from_json(hello["spec"]) == version_free.spec


def test_a_specification_survives_the_way():
    for policy in (flow_policy(), flow_policy(conditions=("open", "close"))):
        hello = wire.unpack(Engine(policy, Refiner(), most_rows=8, most_bytes=9).hello())
        assert from_json(hello["spec"]) == policy.spec


def test_noise_is_chosen_by_the_refiner_and_told():
    served, sent = engine(noise=Double()), message()
    for deterministic, factor in ((True, 2), (False, 10)):
        reply = ask(served, sent | {"deterministic": deterministic})
        np.testing.assert_array_equal(wire.read_array(reply["noise"], "noise"), factor * sent["noise"])


def test_the_gain_is_the_share_of_what_the_refiner_changes():
    served, sent = engine(noise=Double()), message()
    for gain in (0.0, 0.5, 1):
        reply = ask(served, sent | {"gain": gain})
        np.testing.assert_allclose(wire.read_array(reply["noise"], "noise"), (1 + gain) * sent["noise"], 1e-6)
    np.testing.assert_array_equal(
        wire.read_array(ask(served, sent | {"gain": 0})["noise"], ""), sent["noise"]
    )


def test_without_noise_the_server_draws_it():
    served, sent, client = engine(), message(noise=None), Client(1)
    first, second = (wire.read_array(ask(served, sent, client)["noise"], "noise") for _ in range(2))
    assert first.shape == (1, 4, 2)
    assert not np.array_equal(first, second)


def test_the_same_noise_selects_the_same_candidates_whoever_shares_the_batch():
    served, sent = engine(select=LeastSum()), message(rows=3)
    whole = ask(served, sent)
    alone = {key: value[1:2] for key, value in sent.items() if key in {"noise", "episodes"}}
    state = {"observation.state": sent["observation"]["observation.state"][1:2]}
    one = ask(served, sent | alone | {"observation": state})
    for name in ("candidates", "index", "chunk"):
        expected = wire.read_array(whole[name], name)[1:2]
        np.testing.assert_array_equal(wire.read_array(one[name], name), expected)
    assert wire.read_array(whole["candidates"], "").shape == (3, 3, 4, 2)


class Keys(Counts):
    keys = ("observation.goal",)


def flow_message(policy, **changes):
    rng = np.random.default_rng(0)
    features = {**policy.spec.features}
    steps = policy.spec.observation_steps
    observation = {
        key: rng.integers(0, 255, (1, steps, *f.shape)).astype(f.dtype)
        if f.dtype == "uint8"
        else rng.normal(size=(1, steps, *f.shape)).astype(f.dtype)
        for key, f in features.items()
    }
    noise = rng.normal(size=(1, *policy.spec.noise_shape)).astype(np.float32)
    sent = {"kind": "chunk", "id": 1, "observation": observation, "noise": noise, "episodes": ["a"]}
    return sent | changes


def test_hooks_count_episodes_of_each_client_apart_and_forget_those_that_begin_or_left():
    policy = flow_policy()
    served = Engine(policy, Refiner(hooks=(Counts(),)), most_rows=8, most_bytes=9_000_000)
    sent, one, two = flow_message(policy), Client(1), Client(2)

    def counted(client, **changes):
        reply = ask(served, sent | changes, client)
        return int(wire.read_array(reply["info"]["counts.chunks"], "")[0])

    assert [counted(one), counted(one), counted(two)] == [1, 2, 1]
    assert counted(one, begins=["a"]) == 1
    assert counted(one) == 2
    served.forget(one)
    reply = ask(served, sent, two)
    assert int(wire.read_array(reply["info"]["counts.known"], "")[0]) == 1
    assert counted(two) == 3


def test_no_client_fills_the_memory_with_episodes():
    policy, hook = flow_policy(), Counts()
    served = Engine(policy, Refiner(hooks=(hook,)), most_rows=8, most_bytes=9_000_000)
    client = Client(1)
    client.episodes.update(dict.fromkeys(f"client1/{number}" for number in range(MOST_EPISODES)))
    hook.seen.update(dict.fromkeys(client.episodes, 1))
    ask(served, flow_message(policy), client)
    assert len(client.episodes) == len(hook.seen) == MOST_EPISODES
    assert "client1/0" not in client.episodes


def test_keys_of_hooks_are_asked_for():
    policy = flow_policy()
    served = Engine(policy, Refiner(hooks=(Keys(),)), most_rows=8, most_bytes=9_000_000)
    assert "observation.goal" in wire.unpack(served.hello())["keys"]
    sent = flow_message(policy)
    assert "lacks observation.goal" in refused(served, sent)[1]
    goal = np.zeros((1, policy.spec.observation_steps, 3), np.float32)
    sent["observation"]["observation.goal"] = goal
    assert ask(served, sent)["kind"] == "chunk"
    sent["observation"]["observation.goal"] = goal[:, 0]
    assert "observation.goal is float32 (1, 3)" in refused(served, sent)[1]


def test_what_is_served_is_what_the_loop_computes_here():
    policy = flow_policy()
    assert isinstance(policy, FlowPolicy)
    refiner = Refiner(noise=Double(), hooks=(Counts(),))
    sent = flow_message(policy)
    reply = ask(Engine(policy, refiner, most_rows=8, most_bytes=9_000_000), sent)
    observation = {key: torch.from_numpy(value) for key, value in sent["observation"].items()}
    request = ChunkRequest(observation, episode_ids=("a",))
    here = plan_request(policy, refiner, request, torch.from_numpy(sent["noise"]), [])
    np.testing.assert_array_equal(wire.read_array(reply["chunk"], ""), here.chunk)


BAD_STATE = np.array([[[0.0, np.nan]]], np.float32)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": "weights"}, "kind is 'weights'"),
        ({"id": "x"}, "id 'x'"),
        ({"id": -1}, "id '-1'"),
        ({"id": None}, "id 'None'"),
        ({"observation": None}, "observation is NoneType; a map of observation.state"),
        ({"observation": {}}, "lacks observation.state; a missing sensor is never made up"),
        ({"observation": {"observation.stat": 1}}, "holds 'observation.stat'; did you mean"),
        ({"observation": {"observation.state": [1, 2]}}, "an array is a map"),
        ({"observation": {"observation.state": np.zeros((1, 1, 3), "f4")}}, r"float32 \(1, 1, 3\); float32"),
        ({"observation": {"observation.state": np.zeros((1, 2, 2), "f4")}}, r"\(1, 2, 2\)"),
        ({"observation": {"observation.state": np.zeros((1, 1, 2), "f8")}}, "is float64"),
        (
            {"observation": {"observation.state": np.zeros((9, 1, 2), "f4")}},
            "9 rows; this server takes 1 to 8",
        ),
        ({"observation": {"observation.state": np.zeros((0, 1, 2), "f4")}}, "0 rows"),
        ({"observation": {"observation.state": np.zeros(())}}, "0 rows"),
        ({"observation": {"observation.state": BAD_STATE}}, r"state is nan at \(0, 0, 1\); every number"),
        ({"noise": np.zeros((1, 4, 3), np.float32)}, r"noise is float32 \(1, 4, 3\); float32 \(1, 4, 2\)"),
        ({"noise": np.full((1, 4, 2), np.inf, np.float32)}, "noise is inf"),
        ({"previous_chunk": np.zeros((1, 4, 2), np.float32)}, "without consumed"),
        ({"previous_chunk": np.zeros((1, 3, 2), np.float32)}, "previous_chunk is float32"),
        ({"consumed": np.array([-1])}, "consumed holds -1"),
        ({"delay": np.array([1.0])}, "delay is float64"),
        ({"delay": np.array([1, 2])}, r"delay is int64 \(2,\)"),
        ({"episodes": ["a", "b"]}, "2 episode ids for 1 rows"),
        ({"episodes": [1]}, "episodes is a value of type list; a list of texts"),
        ({"episodes": ["a" * 501]}, "a text of 501 characters"),
        ({"begins": "a"}, "begins is a value of type str"),
        ({"condition": "open"}, "condition is 'open'; policy 'gated' takes none"),
        ({"condition": 3}, "condition is int"),
        ({"deterministic": "yes"}, "deterministic is str"),
        ({"gain": 1.5}, "gain is 1.5"),
        ({"gain": float("nan")}, "gain is nan"),
        ({"run": "this"}, "the request holds 'run'"),
    ],
)
def test_a_request_that_is_none_is_refused_with_what_and_why(changes, why):
    import re

    what, because = refused(engine(), message(**changes))
    assert what == "request"
    assert re.search(why, because), because


def test_garbage_is_refused_and_the_next_request_answered():
    served, client = engine(), Client(1)
    for garbage in (b"", b"\xc1", "text", wire.pack({"a": np.zeros(1_000_001, np.uint8)})):
        assert ask(served, garbage, client)["what"] == "request"
    assert ask(served, message(), client)["kind"] == "chunk"
    assert (client.chunks, client.refused) == (1, 4)


def test_a_policy_that_fails_is_told_and_nothing_is_computed_for_a_client_that_left(caplog):
    served = engine()
    failing = message(observation={"observation.state": np.full((1, 1, 2), 8, np.float32)})
    assert refused(served, failing) == ("policy", "PolicyError: out of memory, say")
    gone = Client(2, gone=True)
    assert served.answer(gone, wire.pack(message()), 0.0) is None


def test_only_a_policy_that_was_quick_eight_times_counts_as_quick():
    served, sent = engine(), wire.pack(message())
    found = []
    for _ in range(9):
        found.append(served.quick)
        served.answer(Client(1), sent, 0.0)
    assert found[:8] == [False] * 8
    served._seconds.extend([1e-4] * 8)
    assert served.quick
    served._seconds.append(1.0)
    assert not served.quick


def test_what_cannot_act_here_is_refused_at_the_start():
    with pytest.raises(PolicyError, match="guidance by hooks"):
        engine(hooks=(Counts(),))
    with pytest.raises(ValueError, match="made for the base"):
        engine(base_hash="another")
    from policies.template_policy import HoldPolicy

    with pytest.raises(ValueError, match="policy 'hold' takes none"):
        engine(HoldPolicy(), noise=Double())
