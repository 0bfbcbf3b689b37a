"""Pictures of recorded episodes: the simulation is run again under the recorded actions."""

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from data.records import Episode

type Frame = NDArray[np.uint8]
"""A picture (height, width, 3), RGB."""

BACKENDS = ("egl", "osmesa")
CAMERAS = ("close", "front", "top")
"""Names of cameras that show what matters, the best first."""
BORDER = 6
GOOD, BAD = (11, 122, 117), (179, 38, 30)


class RenderingError(RuntimeError):
    """No OpenGL works here, or a replay does not end as recorded."""


@dataclass(frozen=True)
class Replay:
    """An episode to show.

    Attributes:
        task: task name, Gymnasium id or module:Class.
        options: of the task's constructor.
        seed: of the reset.
        actions: executed actions (T, A).
        success: how it ended.
        camera: camera name; empty for the task's usual view.
        size: (height, width) in pixels.
        every: control steps per frame.
    """

    task: str
    options: Mapping[str, Any]
    seed: int
    actions: NDArray[np.float64]
    success: bool
    camera: str = ""
    size: tuple[int, int] = (288, 288)
    every: int = 1


def replay_of(episode: "Episode", task: str, options: Mapping[str, Any], *, every: int = 1) -> Replay:
    """What is needed to show a recorded episode of a simulated task."""
    if episode.seed is None:
        raise ValueError(f"episode {episode.id} has no seed: only simulated episodes can be shown again")
    return Replay(task, options, episode.seed, episode.action, episode.success, every=every)


def replay_frames(replay: Replay) -> list[Frame]:
    """Run an episode again and take a picture of it every ``replay.every`` steps, first and last included.

    Raises:
        RenderingError: if the replay ends otherwise than recorded.
    """
    import sim
    from sim.task import task_of

    env = sim.make(replay.task, **replay.options)
    task = task_of(env, "picture")
    camera = replay.camera or _usual_camera(getattr(task, "model", None))

    def picture() -> Frame:
        return np.asarray(task.picture(camera, *replay.size), np.uint8)

    env.reset(seed=replay.seed)
    frames, success = [picture()], False
    for step, action in enumerate(replay.actions, start=1):
        *_, info = env.step(action)
        success = bool(info["success"])
        if step % replay.every == 0 or step == len(replay.actions):
            frames.append(picture())
    env.close()
    if success != replay.success:
        raise RenderingError(f"seed {replay.seed} did not end as recorded: was the task changed?")
    return frames


def _usual_camera(model: Any) -> str | int:  # noqa: ANN401 - an MjModel, or None for tasks without MuJoCo
    """The first camera of the usual names that a model has, else the free camera."""
    if model is None:
        return -1
    present = {model.camera(index).name for index in range(model.ncam)}
    return next((name for name in CAMERAS if name in present), -1)


def render(replays: Sequence[Replay]) -> list[list[Frame]]:
    """Pictures of several episodes, taken in a process of its own with the first OpenGL that works.

    A broken OpenGL library can kill the process that loads it, and which one is used is decided when MuJoCo
    is imported; neither should happen to the caller.

    Raises:
        RenderingError: if no OpenGL works; says how to get one.
    """
    reasons = []
    for backend in dict.fromkeys((os.environ.get("MUJOCO_GL") or "egl", *BACKENDS)):
        with _environment(MUJOCO_GL=backend):
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                try:
                    return list(pool.map(replay_frames, replays))
                except RenderingError:
                    raise
                except (BrokenProcessPool, ImportError, RuntimeError, AttributeError) as error:
                    reasons.append(f"{backend}: {error}")
    raise RenderingError(
        f"no picture can be drawn ({'; '.join(reasons)}): apt-get install libegl1 libgl1-mesa-dri libosmesa6"
    )


def side_by_side(
    left: Sequence[Frame], right: Sequence[Frame], good: tuple[bool, bool], hold: int = 12
) -> list[Frame]:
    """Two videos next to each other; the shorter one waits, and both end with a coloured border.

    Args:
        left: pictures (H, W, 3).
        right: pictures of the same size.
        good: whether the left and the right one ended well.
        hold: frames that both endings stay.
    """
    length = max(len(left), len(right)) + hold
    gap = np.full((left[0].shape[0], BORDER, 3), 255, np.uint8)
    halves = [_extended(frames, length, fine) for frames, fine in ((left, good[0]), (right, good[1]))]
    return [np.concatenate([a, gap, b], axis=1) for a, b in zip(*halves, strict=True)]


def _extended(frames: Sequence[Frame], length: int, good: bool) -> list[Frame]:
    last = frames[-1].copy()
    for edge in (np.s_[:BORDER], np.s_[-BORDER:], np.s_[:, :BORDER], np.s_[:, -BORDER:]):
        last[edge] = GOOD if good else BAD
    return [*frames, *[last] * (length - len(frames))]


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
