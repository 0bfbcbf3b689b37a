import gymnasium
import pytest

import sim
from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec
from sim.task import TaskError, task_of

ACTION = ActionSpec(
    (ActionGroup("arm", 1, "delta", "position", "base", unit="m", low=(-1.0,), high=(1.0,)),), 10
)


class Least(gymnasium.Env):
    """Gives what the control loop reads, and nothing else."""

    features = {"observation.state": Feature((1,), "float32", "m")}  # noqa: RUF012 - read-only by convention
    action_spec = ACTION
    task_text = "wait"


@pytest.mark.parametrize("name", sorted(sim.TASKS))
def test_every_task_of_ours_gives_everything(name: str) -> None:
    env = sim.make(name)
    task = task_of(env, "max_steps", "control_hz", "expert", "save", "restore", "picture")
    assert task is env.unwrapped
    env.close()


def test_the_task_is_found_through_wrappers() -> None:
    inner = Least()
    assert task_of(gymnasium.Wrapper(inner)) is inner


def test_what_is_not_needed_may_be_missing() -> None:
    assert task_of(Least()).task_text == "wait"
    with pytest.raises(TaskError, match=r"Least is no task .* it lacks control_hz, expert"):
        task_of(Least(), "control_hz", "expert")


def test_another_environment_is_refused_with_all_that_it_lacks() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(TaskError, match=r"CartPoleEnv .* features, action_spec, task_text\."):
        task_of(env)
    env.close()
