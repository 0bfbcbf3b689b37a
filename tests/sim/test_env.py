import re

import mujoco
import numpy as np
import pytest

import sim
from sim.push_disc import PushDisc


def test_pictures_of_the_arm_come_from_the_named_cameras(rendering):
    env = sim.make("reach", cameras=("front", "wrist"), image_size=(48, 64))
    assert env.features["observation.images.front"].shape == (48, 64, 3)
    observation, _ = env.reset(seed=0)
    front, wrist = (observation[f"observation.images.{name}"] for name in ("front", "wrist"))
    assert front.dtype == np.uint8
    assert front.shape == wrist.shape == (48, 64, 3)
    assert front.std() > 5
    assert wrist.std() > 5
    assert not np.array_equal(front, wrist)
    assert env.picture("front", 24, 32).shape == (24, 32, 3)
    env.close()


def test_a_machine_that_cannot_draw_is_told_what_to_do(monkeypatch):
    def broken(*_):
        raise mujoco.FatalError("no OpenGL")

    monkeypatch.setattr(mujoco, "Renderer", broken)
    env = PushDisc(render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match=r"no OpenGL.*MUJOCO_GL"):
        env.render()


def test_unknown_camera_and_render_mode_are_refused():
    with pytest.raises(ValueError, match="'side'; allowed: front, wrist"):
        sim.make("reach", cameras=("side",))
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        sim.make("reach", render_mode="human")


def test_state_of_another_simulation_is_refused():
    env = PushDisc()
    env.reset(seed=0)
    state = env.save()
    state["physics"] = state["physics"][:-1]
    with pytest.raises(ValueError, match="holds physics of shape"):
        env.restore(state)


def test_saved_state_is_a_copy():
    env = PushDisc()
    env.reset(seed=0)
    state = env.save()
    kept = {key: value.copy() for key, value in state.items()}
    for _ in range(5):
        env.step([0.03, 0.0])
    for key, value in state.items():
        np.testing.assert_array_equal(value, kept[key])


def test_nan_in_an_action_is_refused():
    env = PushDisc()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="not a number"):
        env.step([np.nan, 0.0])


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("peg-insert", {"hol": (0.5, 0.0, 0.5)}, "PegInsert has no reset option 'hol'; did you mean 'hole'?"),
        ("pick-place", {"colour": "red"}, "PickPlace has no reset option 'colour'; it has bin."),
        ("reach", {"goals": (0.5, 0.0, 0.6)}, "Reach has no reset option 'goals'; did you mean 'goal'?"),
        ("reach", {"goal": (0.5, 0.0)}, "reset option goal is (0.5, 0.0); give 3 finite numbers"),
        ("peg-insert", {"hole": (0.5, 0.0, np.nan)}, "reset option hole is (0.5, 0.0, nan)"),
    ],
)
def test_reset_options_that_mean_nothing_are_refused(task, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sim.make(task).reset(seed=0, options=options)
