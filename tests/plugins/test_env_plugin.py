"""The environment plugin: LeRobot's names, its rollout options, success as LeRobot reads it."""

import numpy as np
import pytest
from lerobot.envs import make_env, preprocess_observation
from lerobot.envs.configs import EnvConfig
from lerobot.envs.utils import NEW_ROLLOUT_OPTION, env_to_policy_features

from lerobot_env_robot_rl import RobotRlEnv
from lerobot_env_robot_rl.task_env import LeRobotTask, lerobot_key
from sim.planar_task import CONTROL_HZ
from sim.registry import UnknownTaskError
from tests.robot_rl.toy import TOY, Toy


def test_the_configuration_is_registered_and_takes_its_shapes_from_the_task():
    config = EnvConfig.get_choice_class("robot_rl")(task="push-disc")
    found = env_to_policy_features(config)
    assert config.fps == CONTROL_HZ
    assert found["action"].shape == (2,)
    assert found["observation.state"].shape == (4,)
    with pytest.raises(UnknownTaskError, match="push-disc"):
        RobotRlEnv(task="push-disk")


def test_observations_pass_through_lerobot_unchanged():
    import sim

    task = sim.make("push-disc")
    wrapped = LeRobotTask("push-disc", {})
    expected, _ = task.reset(seed=3)
    found, info = wrapped.reset(seed=3, options={NEW_ROLLOUT_OPTION: True})
    assert info["is_success"] is False
    batch = preprocess_observation({key: value[None] for key, value in found.items()})
    assert batch.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(batch[key][0].numpy(), value)
    assert lerobot_key("observation.images.front") == "pixels/front"
    wrapped.close()
    task.close()


def test_a_finished_row_stays_as_it_is_and_success_is_told():
    (vector,) = make_env(RobotRlEnv(task=TOY, options={"limit": 3}), n_envs=2)["robot_rl"].values()
    assert vector.call("_max_episode_steps") == (Toy.max_steps,) * 2
    assert vector.call("task_description") == (Toy.task_text,) * 2
    observation, _ = vector.reset(seed=[1, 2], options={NEW_ROLLOUT_OPTION: True})
    ended = np.zeros(2, bool)
    for _ in range(4):
        action = -observation["agent_pos"].astype(np.float64)
        action[1] = 0.2
        before = observation["agent_pos"]
        observation, _, terminated, truncated, info = vector.step(action)
        np.testing.assert_array_equal(observation["agent_pos"][ended], before[ended])
        ended |= terminated | truncated
    assert ended.all()
    assert info["final_info"]["is_success"].tolist() == [
        bool(np.linalg.norm(position) < 0.4) for position in observation["agent_pos"]
    ]
    assert vector.envs[0].render().shape == (240, 320, 3)
    vector.close()


def test_without_video_nothing_is_drawn():
    env = LeRobotTask(TOY, {}, video=False)
    assert not env.render().any()
    env.close()
