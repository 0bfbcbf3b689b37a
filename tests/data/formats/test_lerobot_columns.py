from dataclasses import replace

import numpy as np
import pytest

from data.errors import DatasetError
from data.features import Feature, from_array
from data.formats.lerobot_columns import choose, lerobot_features, rows
from data.records import Outcome, Source
from tests.data.episodes import episode

CAMERA = "observation.images.wrist"


def features_of(found):
    return {key: from_array(values[0]) for key, values in found.observations.items()}


def test_every_observation_is_kept_in_the_form_that_lerobot_has_for_it():
    features = {
        CAMERA: Feature((8, 6, 3), "uint8"),
        "observation.state": Feature((5,), "float32", names=("a", "b", "c", "d", "e")),
        "observation.tactile.left": Feature((4, 4, 3), "float32"),
        "observation.depth": Feature((8, 6, 1), "uint8"),
        "observation.open": Feature((), "bool"),
        "observation.images.flat": Feature((3, 6, 3), "uint8"),
        "observation.images.line": Feature((1, 6, 3), "uint8"),
        "observation.images.depth": Feature((8, 6, 1), "float32"),
        "task": Feature((1,), "int64"),
        "observation.half": Feature((2,), "float16"),
    }
    found = choose(features)
    assert found.pictures == (CAMERA,)
    assert found.arrays == (
        "observation.state",
        "observation.tactile.left",
        "observation.depth",
        "observation.open",
    )
    assert sorted(found.apart) == [
        "observation.half",
        "observation.images.depth",
        "observation.images.flat",
        "observation.images.line",
        "task",
    ]
    made = lerobot_features(features, found, ["x", "y"], video=True)
    assert made[CAMERA] == {"dtype": "video", "shape": (8, 6, 3), "names": ["height", "width", "channels"]}
    assert made["observation.state"]["names"] == ["a", "b", "c", "d", "e"]
    assert made["observation.tactile.left"]["shape"] == (48,)
    assert made["observation.tactile.left"]["info"] == {"robot_rl.shape": [4, 4, 3]}
    assert made["observation.open"] == {"dtype": "bool", "shape": (1,), "names": None}
    assert made["action.policy"] == {"dtype": "float32", "shape": (2,), "names": ["x", "y"]}
    assert made["robot_rl.source"]["info"] == {"codes": ["demo", "policy", "human", "paused"]}


def test_rows_say_what_was_done_and_by_whom():
    found = episode(steps=9)
    made = rows(found, choose(features_of(found)))
    assert {len(values) for values in made.values()} == {9}
    np.testing.assert_array_equal(made["action"], found.action.astype(np.float32))
    human = found.source == Source.HUMAN
    np.testing.assert_array_equal(made["intervention"][:, 0], human)
    np.testing.assert_array_equal(made["intervention_segment"][:, 0], found.segment_id)
    np.testing.assert_array_equal(made["next.done"][:, 0], np.arange(9) == 8)
    np.testing.assert_array_equal(made["next.success"][:, 0], np.arange(9) == 8)
    assert not made["next.truncated"].any()
    assert made["next.reward"].dtype == np.float32
    np.testing.assert_array_equal(
        made["observation.tactile.left"][3], found.observations["observation.tactile.left"][3].ravel()
    )


def test_a_row_without_a_policys_action_repeats_the_executed_one_and_says_so():
    found = episode(steps=9)
    missing = np.isnan(found.action_policy).any(axis=1)
    assert missing.any()
    assert not missing.all()
    made = rows(found, choose(features_of(found)))
    np.testing.assert_array_equal(made["valid.action.policy"][:, 0], ~missing)
    np.testing.assert_array_equal(made["action.policy"][missing], made["action"][missing])
    np.testing.assert_array_equal(made["action.policy"][~missing], found.action_policy[~missing].astype("f4"))
    assert made["valid.action.base"].all()


def test_success_is_marked_only_where_there_was_one():
    for outcome in Outcome:
        made = rows(replace(episode(steps=4), outcome=outcome), choose({}))
        assert made["next.success"].any() == (outcome is Outcome.SUCCESS)
        assert set(made["robot_rl.outcome"][:, 0]) == {list(Outcome).index(outcome)}


def test_what_is_not_known_is_never_a_zero_without_a_word():
    found = episode(steps=4)
    unknown = replace(found, reward=[0.5, np.nan, 0.0, np.nan], outcome=Outcome.UNKNOWN)
    made = rows(unknown, choose({}))
    np.testing.assert_array_equal(made["next.reward"][:, 0], np.array([0.5, 0, 0, 0], np.float32))
    assert made["valid.next.reward"][:, 0].tolist() == [True, False, True, False]
    assert not made["valid.next.success"].any()
    made = rows(found, choose({}))
    assert made["valid.next.reward"].all()
    assert made["valid.next.success"].all()
    declared = lerobot_features({}, choose({}), ["x"], video=False)
    assert made.keys() == declared.keys()
    assert declared["valid.next.reward"] == {"dtype": "bool", "shape": (1,), "names": None}


def test_a_plan_too_large_for_a_single_float_counts_as_missing():
    found = episode(steps=4)
    base = found.action_base.copy()
    base[2, 1] = 1e300
    made = rows(replace(found, action_base=base), choose({}))
    assert made["valid.action.base"][:, 0].tolist() == [True, True, False, True]
    np.testing.assert_array_equal(made["action.base"][2], made["action"][2])


@pytest.mark.parametrize("value", [np.inf, -1e300])
def test_rewards_that_would_spoil_the_statistics_are_refused(value):
    found = replace(episode(steps=4), reward=[0.0, 1.0, value, 0.0])
    with pytest.raises(DatasetError, match=r"Episode one: next.reward is not a finite float at step 2"):
        rows(found, choose({}))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_actions_that_would_spoil_the_statistics_are_refused(value):
    found = episode(steps=4)
    action = found.action.copy()
    action[2, 1] = value
    with pytest.raises(DatasetError, match="Episode one: action is not a finite float at step 2"):
        rows(replace(found, action=action), choose({}))


def test_observations_that_would_spoil_the_statistics_are_refused():
    found = episode(steps=4)
    state = found.observations["observation.state"].copy()
    state[1, 2] = np.nan
    broken = replace(found, observations={**found.observations, "observation.state": state})
    with pytest.raises(DatasetError, match=r"observation.state is not a finite float at step 1"):
        rows(broken, choose(features_of(found)))


def test_whole_numbers_of_an_only_step_that_the_statistics_cannot_hold_are_refused():
    for steps in (2, 1):
        found = episode(steps=steps)
        ticks = np.full((steps + 1, 2), -(2**53) - 1)
        found = replace(found, observations={"observation.ticks": ticks})
        if steps > 1:
            assert (
                rows(found, choose(features_of(found)))["observation.ticks"].tolist() == ticks[:-1].tolist()
            )
    with pytest.raises(DatasetError, match=r"Episode one has one step, and observation.ticks holds"):
        rows(found, choose(features_of(found)))
