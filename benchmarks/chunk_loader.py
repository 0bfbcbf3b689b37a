"""Chunks of 16 actions with two pictures, in random order: our store beside LeRobot's own loader, in one run.

The same episodes lie in a store and, exported from it, in a LeRobotDataset whose pictures are as lossless.
Both give float32 tensors in batches for training, pictures (B, 3, H, W) from 0 to 1. LeRobot's
side is its dataset with `delta_timestamps` in a torch DataLoader in this process; ours reads, checks and
unpacks every picture anew, its cache of pictures being off. A contestant with the cache stands beside it.
Processor time of this process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from harness import Contestant, Stopwatch, measure, parser, publish

from data.formats.registry import load
from data.random_access import StoredChunks
from data.records import Episode, EpisodeBuilder, Outcome, Step
from data.store import EpisodeStore

if TYPE_CHECKING:
    from collections.abc import Sequence

CAMERAS = ("observation.images.top", "observation.images.wrist")
STATE = "observation.state"
HORIZON = 16
RATE_HZ = 20
PEER = "LeRobot's loader"


def made_up_episode(index: int, steps: int, size: int) -> Episode:
    """Builds an episode with two cameras that watch a textured square move over a smooth background."""
    generator = np.random.default_rng(index)
    ramp = np.linspace(0, 200, size).astype(np.uint8)
    background = np.stack(
        [np.add.outer(ramp // 2, ramp // 2), np.tile(ramp, (size, 1)), ramp[:, None] | ramp], -1
    )
    patch = generator.integers(0, 256, (size // 4, size // 4, 3), dtype=np.uint8)

    def observe(t: int) -> dict[str, np.ndarray]:
        pictures = {}
        for number, camera in enumerate(CAMERAS):
            picture = background.copy()
            left = (3 * t + 17 * number) % (size - len(patch))
            picture[left : left + len(patch), left // 2 : left // 2 + len(patch)] = patch
            pictures[camera] = picture + generator.integers(0, 3, picture.shape, dtype=np.uint8)
        return {STATE: generator.normal(size=14).astype(np.float32), **pictures}

    builder = EpisodeBuilder(id=f"episode-{index:05d}", task="insert the peg", seed=index)
    builder.start(observe(0))
    for t in range(steps):
        time = t / RATE_HZ
        step = Step(action=generator.normal(size=7), wall_time=time, monotonic_time=time)
        builder.append(step, observe(t + 1))
    return builder.finish(Outcome.FAILURE)


def ours(name: str, chunks: StoredChunks, samples: int, batch: int, peer: str | None) -> Contestant:
    """Builds a contestant over our store."""
    generator = np.random.default_rng(0)

    def turn(stopwatch: Stopwatch) -> int:
        rows = generator.permutation(len(chunks))[:samples]
        with stopwatch:
            for start in range(0, len(rows), batch):
                found = chunks.batch(rows[start : start + batch])
                tensors = {key: torch.from_numpy(rows) for key, rows in found.observations.items()}
                tensors |= {key: tensors[key][:, 0].permute(0, 3, 1, 2).float() / 255 for key in CAMERAS}
                tensors["action"] = torch.from_numpy(found.actions).float()
                check(tensors)
        return len(rows)

    return Contestant(name, turn, "chunk", peer, {"batch": batch})


def lerobots(root: Path, samples: int, batch: int) -> Contestant:
    """Builds the contestant that reads the exported dataset through LeRobot."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    delta = {"action": [t / RATE_HZ for t in range(HORIZON)]}
    dataset = LeRobotDataset("local/robot_rl", root=root, delta_timestamps=delta, video_backend="pyav")
    generator = torch.Generator().manual_seed(0)

    def turn(stopwatch: Stopwatch) -> int:
        rows = torch.randperm(len(dataset), generator=generator)[:samples].tolist()
        loader: Any = torch.utils.data.DataLoader(dataset, batch_size=batch, sampler=rows)
        with stopwatch:
            for tensors in loader:
                check(tensors)
        return len(rows)

    return Contestant(PEER, turn, "chunk", None, {"batch": batch, "workers": 0})


def check(tensors: dict[str, torch.Tensor]) -> None:
    """Refuses to time something else than what was promised."""
    assert tensors["action"].shape[1:] == (HORIZON, 7)
    for camera in CAMERAS:
        assert tensors[camera].shape[1] == 3
        assert tensors[camera].dtype == torch.float32
        assert float(tensors[camera].max()) <= 1.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0], repeats=3)
    command.add_argument("--episodes", type=int, default=5)
    command.add_argument("--steps", type=int, default=100, help="control steps of an episode")
    command.add_argument("--size", type=int, default=128, help="height and width of a picture")
    command.add_argument("--samples", type=int, default=128, help="chunks in a turn")
    command.add_argument("--batch", type=int, default=32)
    options = command.parse_args(arguments)
    torch.set_num_threads(1)
    skipped = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        store = EpisodeStore(Path(folder) / "store")
        for index in range(options.episodes):
            store.write(made_up_episode(index, options.steps, options.size))
        installed = importlib.util.find_spec("lerobot") is not None
        made = []
        for name, room in (("our store", 0), ("our store, pictures cached", 1 << 30)):
            chunks = StoredChunks(store, cameras=CAMERAS, keys=[STATE], horizon=HORIZON, memory_bytes=room)
            stack.enter_context(chunks)
            made.append(ours(name, chunks, options.samples, options.batch, PEER if installed else None))
        if installed:
            exported = Path(folder) / "lerobot"
            load("lerobot").write(iter(store), store.features, None, exported)
            made.append(lerobots(exported, options.samples, options.batch))
        else:
            skipped[PEER] = "lerobot is not installed"
        figures = measure(made, repeats=options.repeats)
    publish("chunk_loader", figures, skipped=skipped, json_path=options.json)


if __name__ == "__main__":
    main()
