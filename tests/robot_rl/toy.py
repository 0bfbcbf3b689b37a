"""A task and a policy small enough for hundreds of episodes a second; importable by worker processes."""

import gymnasium
import numpy as np
from gymnasium import spaces

from data.features import Feature
from hardware.action_spec import ActionGroup, ActionSpec

FEATURES = {"observation.state": Feature((2,), "float32", "m")}
ACTION_SPEC = ActionSpec(
    (ActionGroup("arm", 2, "delta", "position", "base", unit="m", low=(-0.2,), high=(0.2,)),), rate_hz=10.0
)


class ToyExpert:
    def __init__(self, env, seed):
        self.env, self.random = env, np.random.default_rng(seed)

    def act(self):
        return self.env.goal - self.env.x + self.random.normal(0.0, 0.01, 2)


class Toy(gymnasium.Env):
    """A point that should come near the goal, the origin, within `limit` steps."""

    features = FEATURES
    action_spec = ACTION_SPEC
    task_text = "go to the origin"
    max_steps = 12
    control_hz = 10.0
    goal = np.zeros(2)
    observation_space = spaces.Dict({"observation.state": spaces.Box(-9, 9, (2,), np.float32)})
    action_space = spaces.Box(-0.2, 0.2, (2,), np.float32)

    def __init__(self, limit=12, hopeless_seeds=0):
        self.limit, self.hopeless_seeds = limit, hopeless_seeds

    def _see(self):
        return {"observation.state": self.x.astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1.0, 1.0, 2)
        self.steps, self.seed = 0, seed
        return self._see(), {"success": False}

    def step(self, action):
        self.x = self.x + self.action_spec.clip(action)
        self.steps += 1
        distance = float(np.linalg.norm(self.x - self.goal))
        near = bool(distance < 0.4) and self.seed >= self.hopeless_seeds
        info = {"success": near, "contact_force_n": float(self.steps), "distance_m": distance}
        return self._see(), float(near), near, not near and self.steps >= self.limit, info

    def picture(self, camera=-1, height=64, width=64):
        frame = np.full((height, width, 3), 255, np.uint8)
        row, column = (np.clip((self.x + 2) / 4, 0, 0.99) * (height, width)).astype(int)
        frame[row, column] = 0
        return frame

    def expert(self, seed):
        return ToyExpert(self, seed)


TOY = "tests.robot_rl.toy:Toy"


def save_toy_policy(folder):
    """A flow policy with random weights: it solves some seeds and not others."""
    import torch  # not at the top: workers that only simulate need no torch

    from data.statistics import compute_statistics
    from policies.checkpoint import save
    from policies.flow import FlowPolicy
    from policies.flow_config import FlowConfig

    config = FlowConfig(
        inputs=("observation.state",), horizon=4, executed_steps=2, hidden=16, layers=1, steps=2
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = FlowPolicy(config, FEATURES, ACTION_SPEC)
    random = np.random.default_rng(0)
    samples = {key: random.uniform(-1, 1, (64, 2)) for key in ("observation.state", "action")}
    policy.fit(compute_statistics(samples))
    save(policy, folder)
    return folder


class TwoToys(Toy):
    """The same point, told to go there from the left or from the right, whichever side it starts on."""

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed, options=options)
        self.task_text = f"come from the {'left' if self.x[0] < 0 else 'right'}"
        return found


TWO_TOYS = "tests.robot_rl.toy:TwoToys"


class TwoGoals(Toy):
    """Two goals, one of which the text names; nothing else that is observed does."""

    def __init__(self, limit=20, hopeless_seeds=0, told="drawn"):
        super().__init__(limit, hopeless_seeds)
        self.told = told

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed, options=options)
        side = self.np_random.integers(2)
        self.goal = np.array([-0.8, 0.0] if side == 0 else [0.8, 0.0])
        self.task_text = f"go to the {('left', 'right')[side if self.told == 'drawn' else 1 - side]} goal"
        return found


TWO_GOALS = "tests.robot_rl.toy:TwoGoals"
