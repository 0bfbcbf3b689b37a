"""What a recorder sends when its queue has room only now and then."""

import numpy as np
import pytest

from data.builder import EpisodeBuilder
from data.events import EventKind
from data.recording.messages import decode, encode
from data.recording.queued import QueuedRecorder
from data.recording.writer import Writer
from data.records import Chunk, Source, Step

EVERY = 3


class FullNowAndThen:
    """Takes the place of a `RecordingProcess`: whether there is room is drawn, and lasts a while."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.room, self.left = True, 0
        self.builder = EpisodeBuilder(id="e", task="t")
        self.writer = Writer()
        self.writer._recorder = self.builder

    def offer(self, kind, facts, arrays=None, *, spare=0.0):
        if self.left == 0:
            self.room, self.left = bool(self.rng.random() < 0.5), int(self.rng.integers(1, 8))
        self.left -= 1
        return self.room and self.push(kind, facts, arrays or {})

    def push(self, kind, facts, arrays):
        message = memoryview(b"".join(encode(kind, facts, arrays)))
        self.writer.handle(*decode(message))
        return True

    def until(self, done, what):
        while done() is None:
            pass


def run(seed, steps=60):
    """A loop that plans every third step; each number in the episode is the loop's own count."""
    process = FullNowAndThen(seed)
    recorder = QueuedRecorder(process, "e", {})
    recorder.start({"observation.state": [0.0]})
    for t in range(steps):
        if t % EVERY == 0:
            plan = np.arange(t, t + 2 * EVERY, dtype=float)[:, None]
            recorder.add_chunk(Chunk(t // EVERY, t, plan))
        step = Step(
            action=[t],
            action_base=[t],
            chunk_id=t // EVERY,
            chunk_index=t % EVERY,
            wall_time=1e9,
            monotonic_time=float(t),
        )
        recorder.append(step, {"observation.state": [t + 1.0]})
    recorder._catch_up()
    return recorder, process.builder.finish()


@pytest.mark.parametrize("seed", range(40))
def test_plans_point_at_rows_whatever_was_lost(seed):
    recorder, found = run(seed)
    step = found.action[:, 0]
    assert len(recorder) == len(found) == 60 - recorder.dropped.get("steps", 0)
    assert [chunk.id for chunk in found.chunks] == list(range(60 // EVERY))
    for chunk in found.chunks:
        np.testing.assert_array_equal(step < EVERY * chunk.id, np.arange(len(found)) < chunk.first_step)
    plans = {chunk.id: chunk for chunk in found.chunks}
    for t in range(len(found)):
        planned = plans[int(found.chunk_id[t])].actions[found.chunk_index[t]]
        np.testing.assert_array_equal(planned, found.action_base[t])


def test_losses_are_drawn_in_these_tests():
    lost = [run(seed)[0].dropped.get("steps", 0) for seed in range(40)]
    assert sum(count > 5 for count in lost) > 20


@pytest.mark.parametrize("seed", range(10))
def test_each_gap_is_marked_and_told_once(seed):
    _, found = run(seed)
    gaps = np.diff(found.action[:, 0], prepend=-1.0) > 1
    np.testing.assert_array_equal(found.source == Source.PAUSED, gaps)
    notes = {event.time: event.data["dropped_steps"] for event in found.events}
    assert all(event.kind == EventKind.NOTE for event in found.events)
    before = np.diff(found.action[:, 0], prepend=-1.0) - 1
    assert notes == dict(zip(found.monotonic_time[gaps], before[gaps], strict=True))


def test_a_step_that_is_refused_does_not_count():
    process = FullNowAndThen(0)
    process.left, process.room = 100, True
    recorder = QueuedRecorder(process, "e", {})
    recorder.start({"observation.state": [0.0]})
    step = Step(action=[0], wall_time=1e9, monotonic_time=0.0)
    with pytest.raises(ValueError, match=r"'\.\./x' cannot name a stored array"):
        recorder.append(step, {"../x": [1.0]})
    with pytest.raises(TypeError, match="only plain numbers can be recorded"):
        recorder.append(step, {"observation.state": ["text"]})
    assert len(recorder) == 0
    recorder.append(step, {"observation.state": [1.0]})
    assert len(recorder) == len(process.builder) == 1
