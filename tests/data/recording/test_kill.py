"""kill -9 at random moments: what was committed is whole; of what was being recorded, a prefix.

The writers are forks of one process that imported NumPy and the store only, so that a kill costs
milliseconds. A writer tells every step and commit through a pipe; it is killed after a random number of them.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data.events import Event
from data.images import PictureCodec
from data.records import EpisodeBuilder, Outcome, Step, equal
from data.store import EpisodeStore

ROOT = Path(__file__).parents[3]
STEPS = 12
FLUSH_EVERY = 4
FACTS = {"task": "t", "robot": "arm", "metadata": {"a": 1}}


def feed(target, number, told=lambda: None):
    """Episode of this number, the same whenever it is made: everything that an episode can hold."""
    rng = np.random.default_rng(number)

    def seen():
        state = rng.random(5).astype(np.float32)
        picture = np.repeat(rng.integers(0, 255, (16, 4, 3), np.uint8), 6, axis=1)
        return {"observation.state": state, "observation.images.wrist": picture}

    target.start(seen())
    for t in range(STEPS):
        for i in range(5):
            target.stream("observation.wrench", t + i / 5, 1e9 + t, rng.random(6))
        target.stream("observation.images.gel", float(t), 1e9 + t, rng.integers(0, 255, (9, 9, 1), np.uint8))
        step = Step(action=rng.random(3), wall_time=1e9 + t, monotonic_time=float(t), reward=float(number))
        target.append(step, seen(), {"force": rng.random(2)})
        told()
        if t == 6:
            target.event(Event(time=float(t), wall_time=1e9 + t, kind="note", data={"number": number}))


def whole(id_):
    builder = EpisodeBuilder(id=id_, **FACTS)
    feed(builder, int(id_[1:]))
    return builder.finish(Outcome.SUCCESS)


def write_until_killed(path, first, told):
    store = EpisodeStore(path)
    for number in range(first, first + 10_000):
        with store.recorder(id=f"n{number:05d}", flush_every=FLUSH_EVERY, **FACTS) as recorder:
            feed(recorder, number, lambda: os.write(told, b"s"))
            recorder.finish("success")
        os.write(told, b"c")


def fork_writers():
    """Fork a writer for every line read, say its process id, and wait until it is gone."""
    assert "torch" not in sys.modules
    path, told = sys.argv[1], int(sys.argv[2])
    for line in sys.stdin:
        child = os.fork()
        if not child:
            write_until_killed(path, int(line), told)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        os.waitpid(child, 0)
        sys.stdout.write("gone\n")
        sys.stdout.flush()


@pytest.fixture
def writers(tmp_path):
    out, told = os.pipe()
    program = "from tests.data.recording.test_kill import fork_writers; fork_writers()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "s"), str(told)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        pass_fds=[told],
    ) as process:
        os.set_blocking(out, True)
        yield process, out
    os.close(told)
    os.close(out)


def kill_one(writers, first, after):
    """Start a writer, kill it after so many steps or commits; returns the ids it said were committed."""
    process, out = writers
    process.stdin.write(f"{first}\n")
    process.stdin.flush()
    pid = int(process.stdout.readline())
    heard = b""
    while len(heard) < after:
        heard += os.read(out, after - len(heard))
    os.kill(pid, signal.SIGKILL)
    assert process.stdout.readline() == "gone\n"
    os.set_blocking(out, False)
    with contextlib.suppress(BlockingIOError):
        heard += os.read(out, 1 << 16)
    os.set_blocking(out, True)
    return [f"n{first + i:05d}" for i in range(heard.count(b"c"))]


def check_prefix(found, full):
    n = len(found)
    assert n in (4, 7, 11, 12)  # every fourth step, at the event and at the end
    np.testing.assert_array_equal(found.action, full.action[:n])
    np.testing.assert_array_equal(found.reward, full.reward[:n])
    np.testing.assert_array_equal(found.extra["force"], full.extra["force"][:n])
    for key, rows in full.observations.items():
        np.testing.assert_array_equal(found.observations[key], rows[: n + 1])
    for key, per_step in (("observation.wrench", 5), ("observation.images.gel", 1)):
        stream = found.streams[key]
        assert len(stream) == n * per_step
        np.testing.assert_array_equal(stream.values, full.streams[key].values[: len(stream)])
        np.testing.assert_array_equal(stream.times, full.streams[key].times[: len(stream)])
    assert found.events == (full.events if n > 6 else ())
    assert found.metadata == {"a": 1, "recovered": True}
    assert found.outcome is Outcome.UNKNOWN


def kill_many(writers, path, kills, codec=None):
    """Kill writers; returns a row for each: committed by it, and what became of the episode it was at."""
    rng = np.random.default_rng(kills)
    store = EpisodeStore(path, pictures=codec or PictureCodec())
    checked, rows, first = set(), [], 0
    for _ in range(kills):
        after = int(rng.integers(1, 3 * STEPS))
        told = kill_one(writers, first, after)
        there = store.ids() if store.exists else []
        assert set(told) <= set(there)
        for id_ in set(there) - checked:
            assert equal(store.read(id_), whole(id_))
        became = "no recording yet"
        for partial in store.partials():
            assert not partial.active
            became = f"{partial.steps} steps recovered" if partial.steps else "reported as empty, discarded"
            if partial.steps:
                check_prefix(store.recover(partial.id), whole(partial.id))
            else:
                store.discard(partial.id)
        assert store.partials() == []
        rows.append((after, len(set(there) - checked), became))
        checked = set(store.ids()) if store.exists else set()
        first = max((int(id_[1:]) for id_ in checked), default=-1) + 1
    assert store.damages() == {}
    store.write(whole("n99999"))
    assert not (path / ".recording").exists()  # nothing is left of those that were killed
    return rows


def table(rows):
    lines = [f"{'kill':>4} {'after':>6} {'committed':>9}  the episode being recorded"]
    lines += [f"{i:>4} {after:>6} {count:>9}  {became}" for i, (after, count, became) in enumerate(rows, 1)]
    return "\n".join(lines) + "\n"


def test_five_kills(writers, tmp_path):
    assert len(kill_many(writers, tmp_path / "s", 5)) == 5


@pytest.mark.slow
def test_fifty_kills(writers, tmp_path, capsys):
    rows = kill_many(writers, tmp_path / "s", 50)
    assert sum(count for _, count, _ in rows) > 10
    assert len({became for _, _, became in rows}) > 2  # the kills struck at different moments
    with capsys.disabled():
        sys.stdout.write("\n" + table(rows))
