import numpy as np
import pytest

from robot_rl.collect import CollectConfig, collect
from robot_rl.control import run_wave
from robot_rl.env_step import EnvironmentFailedError, take_step
from tests.robot_rl.scripted import CountingEnv, RampPolicy
from tests.robot_rl.toy import Toy


class Breaking(Toy):
    def __init__(self, how="raise"):
        super().__init__()
        self.how = how

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.how == "raise":
            raise KeyError("no servo 3")
        if self.how == "observation":
            observation["observation.state"][1] = np.nan
        if self.how == "success":
            del info["success"]
        return observation, np.inf if self.how == "reward" else reward, terminated, truncated, info


BREAKING = "tests.robot_rl.test_env_step:Breaking"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "failed with KeyError: 'no servo 3'"),
        ("observation", "observation.state is not finite"),
        ("reward", "the reward is inf"),
        ("success", "info lacks 'success'"),
    ],
)
def test_a_broken_environment_is_named_with_seed_and_step_and_nothing_is_recorded(tmp_path, how, message):
    config = CollectConfig(
        out=tmp_path / "run", task=BREAKING, episodes=2, seed=7, workers=1, options={"how": how}
    )
    with pytest.raises(EnvironmentFailedError, match=f"Breaking, seed 7, step 0: .*{message}"):
        collect(config)
    assert not (tmp_path / "run" / "episodes").exists()


class Stopping(CountingEnv):
    def step(self, action):
        raise OSError("cable")


def test_the_control_loop_names_the_row_that_broke():
    with pytest.raises(EnvironmentFailedError, match=r"Stopping, seed 4, step 0: .*OSError: cable"):
        run_wave([Stopping()], [4], RampPolicy())


def test_a_sound_step_is_handed_on_unchanged():
    one, other = Toy(), Toy()
    one.reset(seed=3)
    other.reset(seed=3)
    taken = take_step(one, np.array([0.1, 0.0]), 3, 0)
    expected = other.step(np.array([0.1, 0.0]))
    np.testing.assert_array_equal(taken[0]["observation.state"], expected[0]["observation.state"])
    assert taken[1:] == expected[1:]
