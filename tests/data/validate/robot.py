"""A made-up robot whose recordings have nothing wrong with them, as material to damage."""

import numpy as np

from data.events import Event
from data.features import Feature
from data.records import Episode
from data.streams import Stream

RATE = 20.0
ACTION_SPEC = {
    "rate_hz": RATE,
    "groups": [
        {
            "name": "arm",
            "size": 3,
            "mode": "delta",
            "kind": "position",
            "frame": "base",
            "rotation": "none",
            "unit": "m",
            "low": [-0.02] * 3,
            "high": [0.02] * 3,
            "names": ["x", "y", "z"],
        }
    ],
}
FEATURES = {
    "observation.state": Feature((4,), "float32", "m", ("tool.x", "tool.y", "tool.z", "width")),
    "observation.wrench": Feature((6,), "float32", names=("fx", "fy", "fz", "tx", "ty", "tz")),
    "observation.images.top": Feature((12, 16, 3), "uint8"),
}


def episode(id_="a-0", *, steps=120, seed=0, lag=1, streams=True, **changes):
    """A clean episode; noise in every sensor, motion that follows the action by `lag` steps."""
    rng = np.random.default_rng(seed)
    smooth = np.cumsum(rng.normal(size=(steps, 3)), axis=0)
    action = 0.015 * np.sin(smooth / 2)
    motion = np.concatenate([np.zeros((lag, 3)), action])[:steps]
    tool = np.concatenate([np.zeros((1, 3)), np.cumsum(motion, axis=0)])
    width = 0.04 + 0.03 * np.sin(np.linspace(0, 3, steps + 1))[:, None]
    state = np.concatenate([tool, width], axis=1) + rng.normal(scale=2e-5, size=(steps + 1, 4))
    times = 100.0 + np.arange(steps) / RATE + rng.uniform(0, 2e-3, steps)
    parts = {
        "id": id_,
        "task": "wave",
        "outcome": "success",
        "robot": "made up",
        "observations": {
            "observation.state": state.astype(np.float32),
            "observation.wrench": rng.normal(size=(steps + 1, 6)).astype(np.float32),
            "observation.images.top": rng.integers(0, 255, (steps + 1, 12, 16, 3), dtype=np.uint8),
        },
        "action": action,
        "action_base": np.full_like(action, np.nan),
        "action_policy": action,
        "action_intended": np.full_like(action, np.nan),
        "chunk_id": np.full(steps, -1),
        "chunk_index": np.full(steps, -1),
        "source": np.full(steps, "policy"),
        "segment_id": np.zeros(steps),
        "segment_kind": np.full(steps, "none"),
        "reward": np.zeros(steps),
        "terminated": np.arange(steps) == steps - 1,
        "truncated": np.zeros(steps, bool),
        "wall_time": times + 1.7e9,
        "monotonic_time": times,
        "gain": np.ones(steps),
        "streams": {"observation.force": force(times, rng)} if streams else {},
    }
    return Episode(**{**parts, **changes})


def force(times, rng):
    """500 Hz from a little before the first step until a little after the last."""
    stamps = np.arange(times[0] - 0.1, times[-1] + 0.1, 0.002) + rng.uniform(0, 2e-4)
    feature = Feature((3,), "float32", "N", ("fx", "fy", "fz"))
    values = rng.normal(size=(len(stamps), 3)).astype(np.float32)
    return Stream(stamps, stamps + 1.7e9, values, feature)


def pause(begin, end):
    """A pause as events."""
    made = [(begin, "pause"), (end, "resume")]
    return tuple(Event(time=time, wall_time=time + 1.7e9, kind=kind) for time, kind in made)
