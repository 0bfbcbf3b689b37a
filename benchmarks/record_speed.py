"""Recording: frames per second beside LeRobot's, how long the control loop is held up, and sustained cameras.

Three parts:

1. A 14-d state, a 7-d action and two 128x128 cameras, whole episodes with their commit: our recorder beside
   LeRobotDataset's `add_frame` and `save_episode` with images (no video), both in this process and thread.
2. The same through the recording process at 50 Hz of real time: how long each call held the control loop up.
3. Three 640x480 cameras at 30 Hz and a 500 Hz force through the recording process, lossless and as JPEG:
   gigabytes per hour, what was dropped, and processor time. `--paced` keeps to real time (and then drops can
   happen); otherwise the samples come as fast as the writer takes them.

What the machine does to anybody shows in a plain copy of a picture, timed after each picture in one loop.

Pictures are a made-up scene that moves a pixel per frame, with sensor noise of two levels: harder to pack
than what real cameras send through a video encoder, and much harder than a clean rendering.
"""

from __future__ import annotations

import importlib.util
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import Amount, Contestant, Stopwatch, measure, parser, publish

from data.images import PictureCodec
from data.recording.process import RecordingProcess
from data.recording.realtime import realtime
from data.records import Step
from data.store import EpisodeStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from data.recording.queued import QueuedRecorder

PEER = "LeRobotDataset"
CAMERAS = ("observation.images.top", "observation.images.wrist")
HERTZ_CAMERA, HERTZ_FORCE = 30, 500
_HELD = (
    "median {p50_ms:.2f} ms, p99.9 {p99_9_ms:.2f} ms, longest {max_ms:.2f} ms, longest processor time "
    "of its own {max_cpu_ms:.2f} ms, page faults {faults} (at most {max_faults} in a call)"
)
type Spent = tuple[float, float, int]
"""Seconds of wall time, seconds of processor time and page faults of one call."""


def pictures(count: int, height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Pictures (count, height, width, 3) of a moving scene with sensor noise."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[:height, : width + count]
    scene = np.stack([90 + 60 * np.sin(x / 17), 110 + 50 * np.cos(y / 11), 80 + (x + 2 * y) % 64], axis=2)
    scene[((x // 40) + (y // 40)) % 5 == 0] = (200, 60, 50)
    found = np.empty((count, height, width, 3), np.uint8)
    for i in range(count):
        noisy = scene[:, i : i + width] + generator.normal(0.0, 2.0, (height, width, 3))
        found[i] = np.clip(noisy, 0, 255)
    return found


class Material:
    """What one episode of part 1 and 2 is made of, the same for all."""

    def __init__(self, frames: int) -> None:
        generator = np.random.default_rng(1)
        self.frames = frames
        self.states = generator.normal(size=(frames + 1, 14)).cumsum(0).astype(np.float32)
        self.actions = generator.normal(size=(frames + 1, 7)).astype(np.float32)
        self.cameras = {key: pictures(frames + 1, 128, 128, seed) for seed, key in enumerate(CAMERAS)}

    def observation(self, t: int) -> dict[str, NDArray[Any]]:
        """What was seen at step t."""
        return {"observation.state": self.states[t]} | {key: rows[t] for key, rows in self.cameras.items()}


def record_ours(recorder: Any, material: Material) -> None:  # noqa: ANN401 - either kind of recorder
    """Record an episode as fast as it goes."""
    recorder.start(material.observation(0))
    for t in range(material.frames):
        step = Step(action=material.actions[t], wall_time=1.7e9 + 0.05 * t, monotonic_time=0.05 * t)
        recorder.append(step, material.observation(t + 1))


def ours(material: Material, root: Path) -> Contestant:
    """Our recorder, in this process: every picture packed and every row flushed and committed."""
    store = EpisodeStore(root / "ours")
    turns = 0

    def turn(stopwatch: Stopwatch) -> int:
        nonlocal turns
        turns += 1
        with stopwatch:
            recorder = store.recorder(id=f"episode-{turns}", task="move")
            record_ours(recorder, material)
            recorder.finish("success")
        return material.frames

    return Contestant("our recorder", turn, "frame", PEER, {"frames": material.frames})


def lerobot(material: Material, root: Path) -> Contestant:
    """LeRobot's recording with images, in its default way: written in the calling thread."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        "observation.state": {"dtype": "float32", "shape": (14,), "names": None},
        "action": {"dtype": "float32", "shape": (7,), "names": None},
    }
    names = ["height", "width", "channels"]
    features |= {key: {"dtype": "image", "shape": (128, 128, 3), "names": names} for key in CAMERAS}
    turns = 0

    def turn(stopwatch: Stopwatch) -> int:
        nonlocal turns
        turns += 1
        folder = root / f"lerobot-{turns}"
        dataset = LeRobotDataset.create(
            "bench/record", fps=20, features=features, root=folder, use_videos=False
        )
        with stopwatch:
            for t in range(material.frames):
                dataset.add_frame({**material.observation(t), "action": material.actions[t], "task": "move"})
            dataset.save_episode()
        shutil.rmtree(folder)
        return material.frames

    return Contestant(PEER, turn, "frame", None, {"frames": material.frames})


def held_up(material: Material, root: Path, seconds: float, hertz: float = 50.0) -> dict[str, float]:
    """How long `append` held the loop up, in ms, recording at `hertz` for some seconds of real time."""
    frames = max(2, min(int(seconds * hertz), material.frames))
    spent: list[Spent] = []
    store = EpisodeStore(root / "held")
    with RecordingProcess(store) as process:
        for episode in range(max(1, round(seconds * hertz / frames))):
            recorder = process.recorder(id=f"episode-{episode}", task="move")
            recorder.start(material.observation(0))
            with realtime():
                begin = time.perf_counter()
                for t in range(frames):
                    step = Step(action=material.actions[t], wall_time=1.7e9, monotonic_time=t / hertz)
                    spent.append(_timed(recorder.append, step, material.observation(t + 1)))
                    time.sleep(max(0.0, begin + (t + 1) / hertz - time.perf_counter()))
            recorder.finish("success", allow_dropped=True)
    return _spread(spent)


class Cameras:
    """Three 640x480 cameras at 30 Hz and a force at 500 Hz."""

    keys = ("observation.images.top", "observation.images.left", "observation.images.wrist")

    def __init__(self, distinct: int = 20) -> None:
        self.rows = {key: pictures(distinct, 480, 640, seed) for seed, key in enumerate(self.keys)}
        self.forces = np.random.default_rng(2).normal(size=(500, 6)).astype(np.float32)
        self.room = np.ones_like(self.rows[self.keys[0]][0])
        self.distinct = distinct

    def record(self, process: RecordingProcess, seconds: float, *, paced: bool) -> dict[str, Any]:
        """Record so many seconds; returns sizes, drops, and how long calls held the loop up."""
        recorder = process.recorder(id="long", task="watch", flush_every=HERTZ_CAMERA)
        recorder.start({"observation.state": np.zeros(14, np.float32)})
        spent: list[Spent] = []
        copied: list[Spent] = []
        begin = time.perf_counter()
        with realtime():
            for tick in range(int(seconds * HERTZ_FORCE)):
                now = tick / HERTZ_FORCE
                spent.append(_timed(recorder.stream, "observation.wrench", now, now, self.forces[tick % 500]))
                if len(copied) <= now * HERTZ_CAMERA * len(self.keys):
                    self._frame(recorder, now, spent, copied)
                self._wait(process, begin + now if paced else None)
        fed = time.perf_counter() - begin
        recorder.finish("success", allow_dropped=True)
        copies = {f"copy_{name}": value for name, value in _spread(copied).items()}
        return (
            _spread(spent)
            | copies
            | {
                "fed_s": fed,
                "all_s": time.perf_counter() - begin,
                "frames": len(copied) // len(self.keys),
                "dropped": dict(recorder.dropped),
            }
        )

    def _frame(self, recorder: QueuedRecorder, now: float, spent: list[Spent], copied: list[Spent]) -> None:
        """A picture of every camera, each also copied by itself, and a step."""
        row = len(copied) // len(self.keys) % self.distinct
        for key, rows in self.rows.items():
            spent.append(_timed(recorder.stream, key, now, now, rows[row]))
            copied.append(_timed(np.copyto, self.room, rows[row]))
        step = Step(action=np.zeros(7), wall_time=now, monotonic_time=now)
        spent.append(_timed(recorder.append, step, {"observation.state": np.zeros(14, np.float32)}))

    def _wait(self, process: RecordingProcess, until: float | None) -> None:
        if until is not None:
            time.sleep(max(0.0, until - time.perf_counter()))
        else:
            process.until(lambda: process.waiting < 128 << 20 or None, "the queue")


def sustained(codec: PictureCodec, root: Path, seconds: float, *, paced: bool) -> dict[str, Any]:
    """Part 3 for one way to store pictures."""
    folder = root / f"cameras-{codec.kind}"
    cameras = Cameras()
    before = _children_cpu(), time.process_time()
    with RecordingProcess(EpisodeStore(folder, pictures=codec)) as process:
        found = cameras.record(process, seconds, paced=paced)
    writer, sender = _children_cpu() - before[0], time.process_time() - before[1]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    shutil.rmtree(folder)
    return found | {
        "name": f"three 640x480 cameras and force, {codec.kind}",
        "recorded_s": seconds,
        "paced": paced,
        "gigabytes_per_hour": size / 1e9 / seconds * 3600.0,
        "writer_cores": writer / seconds,
        "sender_cores": sender / seconds,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0], repeats=3)
    command.add_argument("--frames", type=int, default=200, help="frames of an episode in parts 1 and 2")
    command.add_argument("--seconds", type=float, default=10.0, help="recorded time of parts 2 and 3")
    command.add_argument("--jpeg-seconds", type=float, help="recorded time of part 3 as JPEG; as --seconds")
    command.add_argument("--paced", action="store_true", help="part 3 in real time")
    options = command.parse_args(arguments)
    material = Material(options.frames)
    skipped = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = [ours(material, root)]
        if importlib.util.find_spec("lerobot") is None:
            skipped[PEER] = "lerobot is not installed"
        else:
            made.append(lerobot(material, root))
        figures = measure(made, repeats=options.repeats)
        amounts: list[Amount] = [_held_line(held_up(material, root, options.seconds))]
        plans = {
            PictureCodec(): options.seconds,
            PictureCodec("jpeg", 90): options.jpeg_seconds or options.seconds,
        }
        for codec, seconds in plans.items():
            amounts.append(_camera_line(sustained(codec, root, seconds, paced=options.paced)))
    publish("record_speed", [*figures, *amounts], skipped=skipped, json_path=options.json)


def _held_line(found: dict[str, float]) -> Amount:
    text = f"{found['calls']} appends, {_HELD.format(**found)}"
    return Amount("control loop held up, recording process at 50 Hz", text, found)


def _camera_line(found: dict[str, Any]) -> Amount:
    text = (
        "{recorded_s:.0f} s recorded in {all_s:.1f} s, {gigabytes_per_hour:.1f} GB/h, dropped {dropped}, "
        "writer {writer_cores:.2f} and sender {sender_cores:.2f} cores of real time; calls " + _HELD
    )
    text += "; a plain copy of a picture: p99.9 {copy_p99_9_ms:.2f} ms, longest {copy_max_ms:.2f} ms"
    return Amount(found["name"], text.format(**found), found)


def _timed(call: Any, *given: Any) -> Spent:  # noqa: ANN401 - whatever the call takes
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    start, cpu = time.perf_counter(), time.thread_time()
    call(*given)
    wall, own = time.perf_counter() - start, time.thread_time() - cpu
    return wall, own, resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - faults


def _spread(spent: Sequence[Spent]) -> dict[str, float]:
    wall = sorted(1000.0 * seconds for seconds, _, _ in spent)
    return {
        "calls": len(wall),
        "p50_ms": statistics.median(wall),
        "p99_9_ms": wall[min(len(wall) - 1, int(0.999 * len(wall)))],
        "max_ms": wall[-1],
        "max_cpu_ms": 1000.0 * max(cpu for _, cpu, _ in spent),
        "faults": sum(faults for _, _, faults in spent),
        "max_faults": max(faults for _, _, faults in spent),
    }


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
