"""Whatever an episode holds comes back equal, written whole or recorded."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from data.events import Event, EventKind
from data.records import EpisodeBuilder, Step, equal
from data.store import EpisodeStore

DTYPES = st.sampled_from(["bool", "uint8", "int8", "uint16", "int64", "float16", "float32", "float64"])
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
TIMES = st.floats(-1e9, 1e9)
JSON = st.dictionaries(
    st.text(max_size=3), st.none() | st.integers() | TIMES | st.text(max_size=5), max_size=3
)
EVENTS = st.builds(
    Event,
    time=TIMES,
    wall_time=TIMES,
    kind=st.sampled_from(list(EventKind)),
    because=st.text(max_size=9),
    data=JSON,
)


@st.composite
def forms(draw, min_side=0):
    """Samples of one key: several of one type and shape."""
    dtype = draw(DTYPES)
    shape = draw(array_shapes(min_dims=0, max_dims=3, min_side=min_side, max_side=4) | st.just(()))
    return draw(st.lists(arrays(dtype, shape), min_size=1, max_size=4))


@given(
    observations=st.dictionaries(
        st.sampled_from(["a", "observation.b", "c-d"]), forms(min_side=1), min_size=1, max_size=2
    ),
    streams=st.dictionaries(st.sampled_from(["a", "s", "observation.images.t"]), forms(), max_size=2),
    times=st.lists(NUMBERS, min_size=4, max_size=4),
    events=st.lists(EVENTS, max_size=3),
    steps=st.integers(1, 4),
    flush_every=st.integers(1, 3),
)
@settings(max_examples=60)
def test_what_was_given_comes_back(observations, streams, times, events, steps, flush_every):
    def feed(target):
        target.start({key: samples[0] for key, samples in observations.items()})
        for t in range(steps):
            step = Step(action=[times[t]], wall_time=1e9, monotonic_time=times[t], reward=times[-t])
            target.append(step, {key: samples[t % len(samples)] for key, samples in observations.items()})
            for key, samples in streams.items():
                if t < len(samples):
                    target.stream(key, times[t], times[-t], samples[t])
            if t < len(events):
                target.event(events[t])
        return target.finish()

    made = feed(EpisodeBuilder(id="e", task="t"))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("written", "recorded"):
            store = EpisodeStore(Path(folder) / name)
            if name == "written":
                store.write(made)
            else:
                feed(store.recorder(id="e", task="t", flush_every=flush_every))
            found = store.read("e")
            if "repeated" in found.metadata:
                object.__setattr__(found, "metadata", {})
            assert equal(found, made), name
            assert store.damages() == {}


@pytest.mark.parametrize("length", [0, 1])
def test_a_stream_without_samples_is_kept(tmp_path, length):
    from dataclasses import replace

    from data.streams import Stream
    from tests.data.episodes import episode

    stream = Stream(np.zeros(length), np.zeros(length), np.zeros((length, 4, 5, 3), np.uint8))
    made = replace(episode(), streams={"observation.images.x": stream})
    store = EpisodeStore(tmp_path / "s")
    store.write(made)
    assert equal(store.read("one"), made)
