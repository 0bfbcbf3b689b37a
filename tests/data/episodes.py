"""Episodes for tests; every number differs from every other, so that a swap shows."""

import numpy as np

from data.events import Event, EventKind
from data.features import Feature
from data.records import Chunk, EpisodeBuilder, Outcome, SegmentKind, Source, Step


def observation(rng):
    return {
        "observation.state": rng.random(5).astype(np.float32),
        "observation.wrench": rng.normal(size=6).astype(np.float32),
        "observation.tactile.left": rng.random((4, 4, 3)).astype(np.float32),
        "observation.images.wrist": rng.integers(0, 255, (8, 6, 3), dtype=np.uint8),
    }


def fill(target, steps, rng):
    """Feed steps to a builder or recorder: plans of 4, a person takes over at a third."""
    target.start(observation(rng))
    for t in range(steps):
        if t % 4 == 0:
            noise = rng.random((6, 3)).astype(np.float32) if t % 8 == 0 else None
            selected = {"candidates": rng.random((2, 6, 3)), "index": 1} if t % 8 else {}
            target.add_chunk(
                Chunk(t // 4, t, rng.random((6, 3)).astype(np.float32), noise, t % 3, **selected)
            )
        human = t > steps // 3
        step = Step(
            action=rng.random(3),
            action_base=rng.random(3),
            action_policy=None if human else rng.random(3),
            action_intended=rng.random(3) if human else None,
            chunk_id=t // 4,
            chunk_index=t % 4,
            source=Source.HUMAN if human else Source.POLICY,
            segment_id=int(human),
            segment_kind=SegmentKind.RECOVERY if human else SegmentKind.NONE,
            reward=float(t == steps - 1),
            terminated=t == steps - 1,
            wall_time=1.7e9 + 0.05 * t,
            monotonic_time=12.5 + 0.05 * t,
            gain=0.5,
        )
        extra = {"contact_force_n": rng.random(), "residual": rng.random(3)}
        target.append(step, observation(rng), extra)


STREAM_FEATURES = {"observation.wrench": Feature((6,), "float32", "N")}


def fill_streams(target, steps, rng):
    """Feed what came between the steps: ten forces per step, a touch picture at every third, two events."""
    for t in range(steps):
        for i in range(10):
            moment = 12.5 + 0.05 * t + 0.005 * i + 1e-4 * rng.random()
            target.stream("observation.wrench", moment, 1.7e9 + moment, rng.normal(size=6).astype(np.float32))
        if t % 3 == 0:
            picture = rng.integers(0, 255, (6, 4, 3), dtype=np.uint8)
            target.stream("observation.images.gel", 12.5 + 0.05 * t, 1.7e9 + 0.05 * t, picture)
        if t in (2, 4):
            kind = EventKind.PAUSE if t == 2 else EventKind.RESUME
            facts = {"force_n": float(rng.normal()), "key": "space"}
            target.event(Event(time=12.5 + 0.05 * t, wall_time=1.7e9, kind=kind, because="tea", data=facts))


def streaming_episode(id_="streams", steps=13, seed=0):
    """An episode with streams and events besides its steps."""
    builder = EpisodeBuilder(id=id_, task="insert the peg", seed=seed, stream_features=STREAM_FEATURES)
    fill(builder, steps, np.random.default_rng(seed))
    fill_streams(builder, steps, np.random.default_rng(seed + 1000))
    return builder.finish(Outcome.SUCCESS)


def episode(id_="one", steps=13, seed=0):
    builder = EpisodeBuilder(
        id=id_,
        task="insert the peg",
        seed=seed,
        robot="arm",
        operator="ada",
        base_version="b1",
        refiner_version="r2",
        metadata={"hole_error_m": np.array([0.001, -0.002])},
    )
    fill(builder, steps, np.random.default_rng(seed))
    return builder.finish(Outcome.SUCCESS)


def record(store, id_, steps, seed=0, **facts):
    recorder = store.recorder(id=id_, task="insert the peg", seed=seed, **facts)
    fill(recorder, steps, np.random.default_rng(seed))
    return recorder


def die(recorder):
    """End a recorder as the death of its process does: what it did not flush is lost. Gives its folder."""
    recorder._end()
    return recorder._files.folder
