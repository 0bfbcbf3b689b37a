"""What the doctor says about small policies, tasks, robots and recordings whose differences are known."""

import dataclasses
import json

import huggingface_hub.constants
import numpy as np
import pytest

from data.records import Episode
from data.store import EpisodeStore
from policies.loading import load
from robot_rl.cli import main
from robot_rl.control import run_wave
from robot_rl.doctor import Status
from robot_rl.policy_doctor.differences import compare, compare_mode, compare_values, renames
from robot_rl.policy_doctor.examine import examine_policy
from robot_rl.policy_doctor.questions import PolicyQuestions
from robot_rl.policy_doctor.sides import Side, robot_side, task_side
from robot_rl.policy_doctor.trial import recommend
from tests.policies.lerobot.recipes import act_config, diffusion_config, save
from tests.robot_rl.policy_doctor.bench import BENCH, FEATURES, SPEC, record
from tests.robot_rl.toy import ACTION_SPEC, TOY, Toy, save_toy_policy
from tests.robot_rl.toy import FEATURES as TOY_FEATURES


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return save_toy_policy(tmp_path_factory.mktemp("toy") / "base")


@pytest.fixture(scope="module")
def toy_data(toy, tmp_path_factory):
    store = EpisodeStore(
        tmp_path_factory.mktemp("data") / "store", features=TOY_FEATURES, action_spec=ACTION_SPEC.to_json()
    )
    for episode in run_wave([Toy(), Toy()], [0, 1], load(toy)):
        store.write(episode)
    return store.path


@pytest.fixture
def diffusion(tmp_path):
    return save(diffusion_config(), tmp_path / "diffusion")


def examine(**asked):
    found = {}
    for finding in examine_policy(PolicyQuestions(**{"chunks": 2, **asked})):
        found.setdefault(finding.what, []).append(finding)
    return found


def test_a_policy_of_ours_fits_its_own_task_and_recordings(toy, toy_data, capsys):
    words = ["doctor", "--policy", str(toy), "--task", TOY, "--data", str(toy_data), "--chunks", "3"]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in (
        "chunks of 4 at 10 Hz, 2 executed",
        "p50",
        "over 3 chunks",
        "The policy fits.",
        "refine rtc",
    ):
        assert words in printed


def test_a_diffusion_policy_is_held_against_a_task_and_its_keys_are_renamed(diffusion, tmp_path):
    data = record(tmp_path / "data")
    found = examine(policy=diffusion, task=BENCH, data=data, write_mapping=True)
    (renamed,) = (f for f in found["observation.object"] if f.status is Status.DIFFERS)
    assert "in place of the policy's 'observation.environment_state'" in renamed.detail
    assert found["parity"][0].status is Status.OK
    assert "greatest difference 0 of normalised actions" in found["parity"][0].detail
    assert "3 recorded frames" in found["parity"][0].detail
    for key in ("observation.state values", "observation.object values", "action values"):
        assert found[key][0].status is Status.OK, found[key]
    written = json.loads((diffusion / "robot_rl.json").read_text())
    assert written["keys"] == {"observation.environment_state": "observation.object"}
    assert written["rate_hz"] == 20.0
    again = load(diffusion)  # the file says all that it needs
    assert again.spec.features["observation.object"].unit == "m"
    assert again.spec.action_spec == SPEC
    found = examine(policy=diffusion, task=BENCH, data=data)
    assert all(f.status is not Status.DIFFERS for findings in found.values() for f in findings)
    assert found["mapping"][0].status is Status.OK


def test_recordings_in_degrees_are_found(diffusion, tmp_path):
    found = examine(policy=diffusion, task=BENCH, data=record(tmp_path / "data", factor=180 / np.pi))
    (values,) = found["observation.state values"]
    assert values.status is Status.DIFFERS
    assert "4 of 4 dimensions lie far outside" in values.detail
    assert "degrees" in values.remedy


def test_act_is_opaque_and_differs_in_shape_and_action(tmp_path):
    found = examine(policy=save(act_config(), tmp_path / "act"), task=BENCH)
    (environment,) = (f for f in found["observation.environment_state"])
    assert environment.status is Status.DIFFERS
    assert "missing in the task" in environment.detail
    assert any("action size is 2" in f.detail for f in found["action"])
    assert found["refine residual"][0].status is Status.OK
    assert found["refine lpb"][0].status is Status.OPTIONAL
    assert "opens its denoising" in found["refine lpb"][0].remedy
    assert found["parity"][0].status is Status.OK


def test_a_robot_is_asked_without_being_connected(diffusion):
    side = robot_side("tests.robot_rl.policy_doctor.bench:arm")
    assert side.action_spec.size == 2
    shape = [f for f in compare(load(diffusion, rate_hz=20.0), side, {}) if f.what == "observation.state"]
    assert "shape is (2,)" in shape[0].detail
    assert "resize" in shape[0].remedy


def test_another_order_of_the_same_actions_is_named(toy):
    """LeRobot 0.6.1 sends actions in the policy's order under the robot's names (its #4122)."""
    spec = dataclasses.replace(
        ACTION_SPEC, groups=(dataclasses.replace(ACTION_SPEC.groups[0], names=("y", "x")),)
    )
    found = list(compare(load(toy), Side("the robot", TOY_FEATURES, spec), {}))
    (action,) = (f for f in found if f.what == "action")
    assert action.status is Status.DIFFERS
    assert "names" in action.detail
    assert action.remedy.startswith("reorder it")


def test_units_modes_and_rates_have_remedies(toy):
    group = dataclasses.replace(ACTION_SPEC.groups[0], unit="mm", mode="absolute")
    spec = dataclasses.replace(ACTION_SPEC, groups=(group,), rate_hz=5.0)
    features = {"observation.state": dataclasses.replace(TOY_FEATURES["observation.state"], unit="mm")}
    found = list(compare(load(toy), Side("the robot", features, spec), {}))
    assert all(f.status is Status.DIFFERS and f.remedy for f in found)
    assert [f.what for f in found] == ["observation.state", "action", "action", "action"]


def test_a_renaming_is_proposed_only_where_nothing_else_is_possible(diffusion):
    spec = load(diffusion, rate_hz=20.0).spec
    bench = Side("x", FEATURES, SPEC)
    assert renames(spec, bench) == {"observation.environment_state": "observation.object"}
    twice = Side("x", {**FEATURES, "observation.other": FEATURES["observation.object"]}, SPEC)
    assert renames(spec, twice) == {}


@pytest.mark.parametrize("looks", ["absolute", "delta"])
def test_recorded_actions_tell_whether_they_are_absolute(toy, looks):
    random = np.random.default_rng(1)
    state = np.cumsum(random.normal(size=(40, 2)), axis=0).astype(np.float32)
    action = np.diff(state, axis=0).astype(np.float64) if looks == "delta" else state[1:].astype(np.float64)
    episode = dataclasses.replace(_any_episode(toy), observations={"observation.state": state})
    side = Side("the recordings", TOY_FEATURES, ACTION_SPEC, (_with(episode, action),))
    finding = compare_mode(load(toy), side)
    assert f"look {looks}" in finding.detail
    assert finding.status is (Status.OK if looks == "delta" else Status.DIFFERS)  # the toy's are deltas


def _any_episode(toy):
    return run_wave([Toy(limit=39, hopeless_seeds=10**9)], [0], load(toy))[0]


def _with(episode: Episode, action):
    return dataclasses.replace(episode, action=action)


def test_a_policy_without_known_statistics_gives_no_finding_about_values(toy):
    class Bare:
        spec = load(toy).spec

    assert list(compare_values(Bare(), Side("x", TOY_FEATURES, None))) == []


@pytest.mark.parametrize(
    ("late", "said"), [(0.02, "synchronously"), (0.3, "BackgroundPlanner"), (3.0, "robot-rl serve")]
)
def test_latency_decides_how_to_run_it(toy, late, said):
    spec = dataclasses.replace(load(toy).spec, horizon=12, executed_steps=4)
    found = recommend(spec, late)
    assert said in found.detail + found.remedy
    closed = dataclasses.replace(spec, supports=dataclasses.replace(spec.supports, velocity=False))
    assert ("refine rtc" in recommend(closed, late).detail) is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "nowhere"], "there is no policy at nowhere"),
        (["--policy", "user/name", "--task", TOY], "could not be fetched from the hub"),
        (["--policy", "{toy}", "--task", "push-disk"], "did you mean push-disc"),
        (["--policy", "{toy}", "--robot", "nothing"], "not of the form module:name"),
        (["--policy", "{toy}", "--robot", "json:dumps"], "cannot be made without arguments"),
        (["--policy", "{toy}", "--robot", "tests.robot_rl.toy:TOY"], "gives a str"),
        (["--policy", "{toy}", "--data", "{toy}"], "is of no known format"),
        (["--policy", "{toy}", "--data", "missing"], "There is nothing at missing"),
        (["--policy", "{toy}", "--device", "tpu"], "tpu"),
    ],
)
def test_hostile_arguments_give_one_line(words, said, toy, capsys):
    assert main(["doctor", *(word.format(toy=toy) for word in words)]) in {1, 2}
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("robot-rl:")]
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"task": TOY}, "give --policy"),
        ({"policy": "x", "task": TOY, "robot": "a:b"}, "give one of them"),
        ({"policy": "x", "chunks": 0}, "chunks is 0"),
    ],
)
def test_questions_that_mean_nothing_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        PolicyQuestions(**given)


def test_a_task_side_closes_its_environment():
    assert task_side(TOY, PolicyQuestions()).action_spec == ACTION_SPEC
