"""Episodes written as text, one letter a step: d demo, p policy, h human, r rewinding human, | paused."""

import numpy as np

from data.events import Event
from data.records import Chunk, EpisodeBuilder, Outcome, SegmentKind, Source, Step

PERIOD = 0.05
SOURCES = {
    "d": Source.DEMO,
    "p": Source.POLICY,
    "h": Source.HUMAN,
    "r": Source.HUMAN,
    "|": Source.PAUSED,
}


def timeline(
    text, outcome="success", *, times=None, chunk=0, terminated=None, reward=None, events=(), id_="one"
):
    """Episode whose actions count its steps; times are s after 100, one control period apart unless given.

    Events are pairs of a kind and s after 100.
    """
    times = PERIOD * np.arange(len(text)) if times is None else times
    builder = EpisodeBuilder(id=id_, task="insert the peg", seed=0)
    builder.start({"observation.state": np.array([0.0], np.float32)})
    if chunk:
        builder.add_chunk(Chunk(0, 0, np.zeros((chunk, 1))))
    for kind, time in events:
        builder.event(Event(time=100.0 + time, wall_time=1.7e9 + time, kind=kind))
    last = len(text) - 1
    for t, letter in enumerate(text):
        step = Step(
            action=np.array([float(t)]),
            action_policy=np.array([1000.0 + t]),
            action_intended=np.array([-float(t)]) if letter in "hrd" else None,
            source=SOURCES[letter],
            segment_kind=SegmentKind.REWIND if letter == "r" else SegmentKind.NONE,
            terminated=t == last and (outcome != "unknown" if terminated is None else terminated),
            reward=float(t == last and outcome == "success") if reward is None else reward[t],
            wall_time=1.7e9 + times[t],
            monotonic_time=100.0 + times[t],
        )
        builder.append(step, {"observation.state": np.array([t + 1.0], np.float32)})
    return builder.finish(Outcome(outcome))
