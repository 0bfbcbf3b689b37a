"""The checker finds what it promises to find: each task here breaks one rule."""

import numpy as np
import pytest

from sim.conformance import ConformanceError, check_task
from sim.push_disc import PushDisc


class HiddenState(PushDisc):
    """Keeps something outside of memory that changes what is seen."""

    calls = 0

    def _observe(self):
        self.calls += 1
        observation = super()._observe()
        if self.elapsed_steps:
            observation["observation.state"][0] += np.float32(1e-6 * self.calls)
        return observation


class ForgetsOnRestore(PushDisc):
    """Draws from a generator that save() does not know."""

    def _begin(self, options):
        super()._begin(options)
        self.own = np.random.default_rng(int(self.np_random.integers(1000)))

    def _observe(self):
        observation = super()._observe()
        observation["observation.state"][0] += np.float32(self.own.normal())
        return observation


class UndeclaredSensor(PushDisc):
    def __init__(self):
        super().__init__(wrench=True)
        self.features = {"observation.state": self.features["observation.state"]}
        self.observation_space = PushDisc().observation_space


class Wordless(PushDisc):
    task_text = ""


class Endless(PushDisc):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, False, info


class Generous(PushDisc):
    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 0.5, terminated, truncated, info


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (ForgetsOnRestore, r"after restore\(\) differs"),
        (Wordless, "task_text is empty"),
        (Endless, "truncated is False after 25 of 25"),
        (Generous, "reward 0.5"),
    ],
)
def test_finds_the_broken_rule(task, message):
    with pytest.raises(ConformanceError, match=message):
        check_task(task, steps=20)


def test_finds_state_outside_of_memory():
    with pytest.raises(UserWarning, match="observations are not equal"):
        check_task(HiddenState, steps=20)


def test_finds_a_sensor_that_features_do_not_list():
    with pytest.raises(AssertionError, match="not within the observation space"):
        check_task(UndeclaredSensor, steps=20)


def test_refuses_other_environments():
    class Foreign:
        unwrapped = object()

    with pytest.raises(ConformanceError, match="lacks features, action_spec, task_text, max_steps"):
        check_task(Foreign)
