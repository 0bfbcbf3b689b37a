"""A task and recordings that the tiny Diffusion of tests/policies/lerobot can be held against."""

from __future__ import annotations

import numpy as np

from data.features import Feature
from data.records import EpisodeBuilder, Outcome, Step
from data.store import EpisodeStore
from hardware.action_spec import ActionGroup, ActionSpec
from hardware.template_robot import BenchArm, StandIn
from tests.robot_rl.toy import Toy

FEATURES = {
    "observation.state": Feature((4,), "float32", "rad"),
    "observation.object": Feature((6,), "float32", "m"),
}
SPEC = ActionSpec(
    (ActionGroup("arm", 2, "absolute", "joint", unit="rad", low=(-2.0,), high=(2.0,)),), rate_hz=20.0
)
BENCH = "tests.robot_rl.policy_doctor.bench:Bench"


class Bench(Toy):
    features = FEATURES
    action_spec = SPEC
    task_text = "reach"


def arm() -> BenchArm:
    return BenchArm(StandIn())


def record(folder, *, factor=1.0, features=None):
    """Write two episodes whose states lie where the tiny policies were trained, times a factor."""
    features = FEATURES if features is None else features
    store = EpisodeStore(folder, features=features, action_spec=SPEC.to_json())
    random = np.random.default_rng(0)

    def see():
        return {
            key: (factor * random.uniform(0.4, 0.6, f.shape)).astype(np.float32)
            for key, f in features.items()
        }

    for number in range(2):
        builder = EpisodeBuilder(id=f"e{number}", task="reach", seed=number)
        builder.start(see())
        for step in range(12):
            done = step == 11
            time = {"wall_time": 1.7e9 + 0.05 * step, "monotonic_time": 0.05 * step}
            action = random.uniform(0.4, 0.6, 2)
            builder.append(Step(action=action, reward=0.0, terminated=done, **time), see())
        store.write(builder.finish(Outcome.SUCCESS))
    return folder
