import logging
import math
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data.errors import LockedStoreError, StoreError
from data.images import PictureCodec
from data.recording.process import RecordingProcess
from data.records import Outcome, Source, Step, equal
from data.store import EpisodeStore
from tests.data.episodes import STREAM_FEATURES, fill, fill_streams, streaming_episode

QUEUE = 4 << 20
ROOT = Path(__file__).parents[3]


@pytest.fixture
def store(tmp_path):
    return EpisodeStore(tmp_path / "s")


def steps_of(recorder, first, count, size=2000):
    """Steps whose observation, action and time are all the number of the step."""
    for t in range(first, first + count):
        step = Step(action=[t], wall_time=1e9 + t, monotonic_time=float(t), terminated=t == 99)
        recorder.append(step, {"observation.state": np.full(size, t + 1.0)})


def begin(process, id_="e", size=2000, **facts):
    recorder = process.recorder(id=id_, task="t", **facts)
    recorder.start({"observation.state": np.zeros(size)})
    return recorder


def test_the_writer_starts_without_torch():
    imports = "import sys, data.recording.writer, data.recording.process"
    program = f"{imports}; assert not {{'torch', 'zarr', 'av'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_the_writer_never_takes_a_processor_from_the_loop_that_wakes_it(store):
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH


def test_what_was_queued_equals_what_was_built(store):
    facts = {"task": "insert the peg", "seed": 0, "stream_features": STREAM_FEATURES}
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        for id_ in ("streams", "again"):
            recorder = process.recorder(id=id_, flush_every=5, **facts)
            fill(recorder, 13, np.random.default_rng(0))
            fill_streams(recorder, 13, np.random.default_rng(1000))
            assert recorder.finish(Outcome.SUCCESS) == id_
            assert len(recorder) == 13
            assert not recorder.dropped
            assert equal(store.read(id_), streaming_episode(id_))
    assert store.partials() == []


def test_the_stores_way_with_pictures_is_the_writers(tmp_path):
    store = EpisodeStore(tmp_path / "s", pictures=PictureCodec("jpeg", 70), action_spec={"rate_hz": 20.0})
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        recorder = process.recorder(id="e", task="t")
        fill(recorder, 3, np.random.default_rng(0))
        recorder.finish()
    assert store.action_spec == {"rate_hz": 20.0}
    assert (store.path / "e/observations/observation.images.wrist/bytes/c.0").is_file()


def test_recordings_are_discarded_and_made_again(store):
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        recorder = begin(process)
        steps_of(recorder, 0, 30)
        recorder.discard()
        recorder = begin(process)
        recorder.metadata["note"] = "second try"
        steps_of(recorder, 0, 3)
        recorder.finish("failure")
        with pytest.raises(StoreError, match="closed"):
            recorder.append(None, {})
        with pytest.raises(StoreError, match="Episode e exists already"):
            begin(process)
        with begin(process, "torn") as recorder:
            steps_of(recorder, 0, 4)
            recorder.metadata["late"] = True
    found = store.read("e")
    assert (len(found), found.metadata) == (3, {"note": "second try"})
    assert [(p.id, p.steps, p.active) for p in store.partials()] == [("torn", 4, False)]
    assert store.recover("torn").metadata == {"late": True, "recovered": True}


def test_two_writers_do_not_share_a_store(store):
    with (
        RecordingProcess(store, queue_bytes=QUEUE) as process,
        RecordingProcess(store, queue_bytes=QUEUE) as other,
    ):
        begin(process)
        with pytest.raises(LockedStoreError, match=r"records \['e'\]"):
            begin(other, "f")


@pytest.fixture
def stopped(store):
    """A small queue whose reader is asleep: nothing that goes on must wait for it."""
    with RecordingProcess(store, queue_bytes=100_000) as process:
        recorder = begin(process)
        process.until(lambda: process.waiting == 0 or None, "the start")
        os.kill(process.pid, signal.SIGSTOP)
        yield process, recorder
        process._process.send_signal(signal.SIGCONT)  # unless it has ended


def test_a_full_queue_never_waits_is_counted_and_an_error_at_the_end(stopped, store, caplog):
    process, recorder = stopped
    with caplog.at_level(logging.ERROR):
        steps_of(recorder, 0, 50)
    lost = recorder.dropped["steps"]
    assert lost == 50 - len(recorder) > 30
    assert caplog.text.count("queue is full; steps are being lost") == 1
    os.kill(process.pid, signal.SIGCONT)
    process.until(lambda: process.waiting == 0 or None, "the queue")
    steps_of(recorder, 50, 5)
    with pytest.raises(StoreError, match=rf"{{'steps': {lost}}} were not recorded.*allow_dropped=True"):
        recorder.finish("success")
    assert store.ids() == []
    recorder.finish("success", allow_dropped=True)

    found = store.read("e")
    assert found.metadata["dropped"] == {"steps": lost}
    paused = found.source == Source.PAUSED
    assert paused.sum() == 1
    (gap,) = found.events
    assert gap.data == {"dropped_steps": lost}
    assert gap.time == found.monotonic_time[paused][0] == 49.0
    seen, came = (
        found.observations["observation.state"][:-1, 0],
        found.observations["observation.state"][1:, 0],
    )
    np.testing.assert_array_equal(
        seen[~paused], found.action[~paused, 0]
    )  # no action beside another's picture
    np.testing.assert_array_equal(came, found.action[:, 0] + 1)
    assert found.action[-1, 0] == 54.0


def test_closing_does_not_wait_for_ever_for_a_writer_that_was_stopped(stopped, store, monkeypatch):
    process, recorder = stopped
    steps_of(recorder, 0, 5)
    monkeypatch.setattr("data.recording.process._CLOSE_S", 0.05)
    for again in (process.close, process.close, recorder.close):
        with pytest.raises(StoreError, match=rf"kill -CONT {process.pid}|takes nothing more"):
            again()
    monkeypatch.undo()
    os.kill(process.pid, signal.SIGCONT)
    process.close()
    assert store.partials()[0].steps == 5


@pytest.mark.parametrize("clock", [math.nan, math.inf])
def test_a_gap_before_a_step_whose_clock_failed_is_told(stopped, store, clock):
    process, recorder = stopped
    steps_of(recorder, 0, 30)
    for wall, now in ((clock, clock), (1e9, clock), (clock, 3.0)):
        step = Step(action=[30], wall_time=wall, monotonic_time=now)
        recorder.append(step, {"observation.state": np.full(2000, 31.0)})
    os.kill(process.pid, signal.SIGCONT)
    process.until(lambda: process.waiting == 0 or None, "the queue")
    steps_of(recorder, 31, 2)
    recorder.finish("success", allow_dropped=True)
    (gap,) = store.read("e").events
    assert gap.data == {"dropped_steps": recorder.dropped["steps"]}
    assert (gap.time, gap.wall_time) == (3.0, 1e9 + 31)


def test_one_step_that_had_to_wait_for_room_is_not_lost(stopped, store):
    process, recorder = stopped
    steps_of(recorder, 0, 6)  # the sixth is held back
    os.kill(process.pid, signal.SIGCONT)
    process.until(lambda: process.waiting == 0 or None, "the queue")
    steps_of(recorder, 6, 2)
    recorder.finish("success")
    np.testing.assert_array_equal(store.read("e").action[:, 0], np.arange(8))
    assert not (store.read("e").source == Source.PAUSED).any()


def test_samples_that_do_not_fit_are_counted_and_events_and_plans_are_kept(stopped, store):
    from data.events import Event
    from data.records import Chunk

    process, recorder = stopped
    for i in range(30):
        recorder.stream("observation.wrench", 0.01 * i, 1e9, np.full(1000, float(i)))
    lost = recorder.dropped["observation.wrench"]
    for i in range(20):
        recorder.event(Event(time=float(i), wall_time=1e9, kind="note", because="n" * 3000))
    recorder.add_chunk(Chunk(7, 0, np.zeros((2, 1))))
    os.kill(process.pid, signal.SIGCONT)
    step = Step(action=[0], wall_time=1e9, monotonic_time=0.0, chunk_id=7)
    recorder.append(step, {"observation.state": np.zeros(2000)})
    recorder.finish("success", allow_dropped=True)
    found = store.read("e")
    assert lost == 30 - len(found.streams["observation.wrench"]) > 10
    assert [event.time for event in found.events] == list(range(20))
    assert [chunk.id for chunk in found.chunks] == [7]


def test_when_the_writer_dies_the_next_step_says_so_and_what_was_flushed_is_recovered(store):
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        recorder = begin(process, flush_every=5)
        steps_of(recorder, 0, 12)
        process.until(lambda: process.waiting == 0 or None, "the queue")
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(StoreError, match=r"writing process ended with code -9.*recovered"):
            steps_of(recorder, 12, 100)
    assert [(p.id, p.active) for p in store.partials()] == [("e", False)]
    found = store.recover("e")
    np.testing.assert_array_equal(found.action[:, 0], np.arange(len(found)))
    assert len(found) in (5, 10)


SENDER = """
import os, sys
from data.store import EpisodeStore
from data.recording.process import RecordingProcess
from tests.data.recording.test_process import begin, steps_of
process = RecordingProcess(EpisodeStore(sys.argv[1]))
steps_of(begin(process), 0, 33)
os.kill(os.getpid(), 9)
"""


def test_when_the_sender_is_killed_everything_that_it_sent_is_kept(store):
    program = [sys.executable, "-c", SENDER, str(store.path)]
    sender = subprocess.run(program, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    assert sender.returncode == -9  # by now the writer is gone too: it had the other end of this pipe
    assert [(p.id, p.steps, p.active) for p in store.partials()] == [("e", 33, False)]
    np.testing.assert_array_equal(store.recover("e").action[:, 0], np.arange(33))


def test_what_no_episode_can_hold_is_reported_and_the_steps_before_are_kept(store):
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        recorder = begin(process)
        steps_of(recorder, 0, 3)
        steps_of(recorder, 3, 1, size=7)
        with pytest.raises(ValueError, match=r"Episode e, step 3.*float64\(7,\), before float64\(2000,\)"):
            recorder.finish()
        assert len(store.recover("e")) == 3
        begin(process, "f").discard()


def test_a_full_disk_is_reported_with_what_is_safe(store):
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        recorder = begin(process, flush_every=2)
        steps_of(recorder, 0, 2)
        process.until(lambda: process.waiting == 0 or None, "the queue")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
        steps_of(recorder, 2, 2)
        with pytest.raises(StoreError, match=r"Episode e: what came from step 2 on cannot.*File too large"):
            recorder.finish()
        assert store.partials()[0].steps == 2
    assert len(store.recover("e")) == 2


def test_a_process_records_one_episode_at_a_time(store):
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        first = begin(process, "a")
        steps_of(first, 0, 3)
        with pytest.raises(StoreError, match="Episode a is still being recorded"):
            process.recorder(id="b", task="t")
        steps_of(first, 3, 3)
        first.finish("success")
        steps_of(second := begin(process, "b"), 50, 4)
        with pytest.raises(StoreError, match="recorder of episode a is closed"):
            steps_of(first, 6, 1)
        second.finish("failure")
    assert store.read("a").action[:, 0].tolist() == list(range(6))
    assert store.read("b").action[:, 0].tolist() == list(range(50, 54))
    assert [str(store.read(id_).outcome) for id_ in "ab"] == ["success", "failure"]


def test_a_recorder_that_failed_does_not_reach_into_the_next_episode(store):
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        failed = begin(process, "a")
        steps_of(failed, 0, 1)
        failed.append(Step(action=[1, 2], wall_time=1.0, monotonic_time=1.0), {})
        with pytest.raises(ValueError, match="Episode a"):
            failed.finish()
        following = begin(process, "b")
        for late in (lambda: steps_of(failed, 1, 1), failed.finish, failed.discard):
            with pytest.raises(StoreError, match="recorder of episode a is closed"):
                late()
        failed.close()
        steps_of(following, 20, 2)
        following.finish("success")
    assert store.read("b").action[:, 0].tolist() == [20, 21]


def test_forks_of_the_control_program_do_not_keep_the_writer(store):
    held, release = os.pipe()
    process = RecordingProcess(store, queue_bytes=QUEUE)
    recorder = begin(process)
    child = os.fork()
    if not child:  # as a data loader's worker, which lives on
        os.close(release)
        os.read(held, 1)
        os._exit(0)
    steps_of(recorder, 0, 3)
    recorder.finish("success")
    process.close()  # comes back although the fork is alive
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    record_ends = EpisodeStore(store.path).recorder(id="next", task="t")
    record_ends.discard()
    os.close(release)
    os.close(held)
    os.waitpid(child, 0)
    assert len(store.read("e")) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_whole_group_leaves_the_queue_to_be_written(store, number):
    with RecordingProcess(store, queue_bytes=QUEUE) as process:
        recorder = begin(process)
        steps_of(recorder, 0, 3)
        os.kill(process.pid, number)
        steps_of(recorder, 3, 3)
        recorder.finish("success")
    assert len(store.read("e")) == 6


@pytest.mark.parametrize("spare", range(0, 9, 2))
def test_without_handles_no_process_is_started_and_none_is_lost(store, spare):
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - as few handles as possible
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, before))
    taken = [os.dup(0) for _ in range(highest + 1 - len(before) + 2)]  # no gaps below the limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1 + spare, hard))
    try:
        with pytest.raises(StoreError, match=r"No process can be started .*: Too many open files"):
            RecordingProcess(store, queue_bytes=QUEUE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for handle in taken:
            os.close(handle)
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208
