"""Writing and reading whole episodes: our store beside one HDF5 file per episode, in one run.

The same episodes, the size of PegInsert's, go through both. Our store checks every byte it reads against its
manifest, and a written episode is there whole or not at all. The HDF5 peer does the plain thing: gzip at
level 1, no checksums. Both hand their files to the operating system and wait for no disk. Wall time, since
both wait on the file system.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from harness import Contestant, Stopwatch, measure, parser, publish

from data.records import Episode, EpisodeBuilder, Outcome, Step
from data.store import EpisodeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OBSERVATION = {
    "observation.state": (9,),
    "observation.environment_state": (3,),
    "observation.wrench": (6,),
    "observation.tactile.left": (4, 4, 3),
    "observation.tactile.right": (4, 4, 3),
}
ACTIONS = 3
PEER = "HDF5"


def made_up_episode(index: int, steps: int) -> Episode:
    """Builds an episode of this many steps out of a random walk."""
    generator = np.random.default_rng(index)
    walk = {
        key: generator.normal(size=(steps + 1, *shape)).cumsum(0).astype(np.float32)
        for key, shape in OBSERVATION.items()
    }
    builder = EpisodeBuilder(id=f"episode-{index:05d}", task="insert the peg", seed=index)
    builder.start({key: rows[0] for key, rows in walk.items()})
    for t in range(steps):
        action = generator.normal(size=ACTIONS)
        step = Step(action=action, action_base=action, wall_time=0.05 * t, monotonic_time=0.05 * t)
        builder.append(
            step, {key: rows[t + 1] for key, rows in walk.items()}, {"contact_force_n": np.zeros(1)}
        )
    return builder.finish(Outcome.FAILURE)


class OurStore:
    """Episodes in an `EpisodeStore`."""

    def __init__(self, folder: Path) -> None:
        self._store = EpisodeStore(folder)

    def write(self, episode: Episode) -> None:
        """Writes one episode."""
        self._store.write(episode)

    def read(self, name: str) -> int:
        """Reads one episode and returns its length."""
        return len(self._store.read(name))


class Hdf5Files:
    """Episodes in one HDF5 file each."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder

    def write(self, episode: Episode) -> None:
        """Writes one episode: observations, columns and extras."""
        import h5py

        path = self._folder / f"{episode.id}.h5"
        with h5py.File(path, "w") as file:
            for key, value in _arrays(episode).items():
                text = value.dtype.kind == "U"
                data = value.astype("S16") if text else value
                file.create_dataset(key, data=data, compression="gzip", compression_opts=1)

    def read(self, name: str) -> int:
        """Reads every array of one episode and returns its length."""
        import h5py

        with h5py.File(self._folder / f"{name}.h5", "r") as file:
            arrays = {key: file[key][()] for key in file}
        return len(arrays["action"])


def contestants(
    name: str,
    make: Callable[[Path], OurStore | Hdf5Files],
    episodes: Sequence[Episode],
    root: Path,
    peer: str | None,
) -> list[Contestant]:
    """Builds a contestant that writes all episodes to a fresh folder and one that reads them back."""
    turns = 0
    written = make(root / f"{name}-read")
    for episode in episodes:
        written.write(episode)

    def write(stopwatch: Stopwatch) -> int:
        nonlocal turns
        turns += 1
        folder = root / f"{name}-write-{turns}"
        store = make(folder)
        with stopwatch:
            for episode in episodes:
                store.write(episode)
        shutil.rmtree(folder)
        return len(episodes)

    def read(stopwatch: Stopwatch) -> int:
        with stopwatch:
            for episode in episodes:
                assert written.read(episode.id) == len(episode)
        return len(episodes)

    settings = {"episodes": len(episodes), "steps": len(episodes[0])}
    return [
        Contestant(f"{name}, {verb}", turn, "episode", f"{peer}, {verb}" if peer else None, settings)
        for verb, turn in (("write", write), ("read", read))
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0])
    command.add_argument("--episodes", type=int, default=20, help="episodes in a turn")
    command.add_argument("--steps", type=int, default=100, help="control steps of an episode")
    options = command.parse_args(arguments)
    episodes = [made_up_episode(index, options.steps) for index in range(options.episodes)]
    skipped = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = contestants("our store", OurStore, episodes, root, PEER)
        if importlib.util.find_spec("h5py") is None:
            skipped[PEER] = "h5py is not installed"
        else:
            made += contestants(PEER, Hdf5Files, episodes, root, None)
        figures = measure(made, repeats=options.repeats, clock="wall")
    publish("store_speed", figures, skipped=skipped, json_path=options.json)


def _arrays(episode: Episode) -> dict[str, np.ndarray]:
    columns = {name: value for name, value in vars(episode).items() if isinstance(value, np.ndarray)}
    return {**columns, **dict(episode.observations), **dict(episode.extra)}


if __name__ == "__main__":
    main()
