"""Chunks of actions with their pictures, straight from a store, in any order and in bounded memory.

What is small (states, actions, labels) is read once and kept; pictures stay in the store and are unpacked one
by one, each checked against its own checksum, and those used last are kept as far as the memory given allows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np

from data.errors import DamagedEpisodeError
from data.images import PictureError
from data.windows import Batch, ChunkWindows, Trajectory

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from data.picture_files import Pictures
    from data.store import EpisodeStore

_ROW = "row"  # every window has at least this one: which observation of its episode it is
_OPEN_FILES = 256


class StoredChunks:
    """What `data.windows.ChunkWindows` is in memory, over a store that need not fit into it.

    Close it, or use it as a context manager. Where the store declares the control rate, chunks also end at
    gaps in the times that no event explains: see `Trajectory.of`.

    Args:
        store: The episodes.
        cameras: Keys of pictures to give.
        keys: Keys of other observations to give; all of them when None.
        ids: Which episodes; all of them when None.
        observation_steps: Length of the history n_obs.
        horizon: Length of the chunk H.
        first_action: See `ChunkWindows`.
        sources: Imitate only steps of these sources; of any when None.
        memory_bytes: Most memory for unpacked pictures.

    Raises:
        KeyError: An episode lacks a camera or an observation.
        DamagedEpisodeError: A file of an episode is missing or was changed; of pictures, when they are read.
        ValueError: There is nothing to cut, or the episodes do not fit together.
    """

    def __init__(
        self,
        store: EpisodeStore,
        *,
        cameras: Sequence[str] = (),
        keys: Collection[str] | None = None,
        ids: Sequence[str] | None = None,
        observation_steps: int = 1,
        horizon: int = 16,
        first_action: int = 0,
        sources: Collection[str] | None = None,
        memory_bytes: int = 1 << 30,
    ) -> None:
        self.ids = list(store.ids() if ids is None else ids)
        self.cameras = tuple(cameras)
        made = [self._trajectory(store, id_, keys, sources) for id_ in self.ids]
        self._windows = ChunkWindows(
            made, observation_steps=observation_steps, horizon=horizon, first_action=first_action
        )
        self._pictures = _PictureCache(store, memory_bytes)

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._windows)

    def batch(self, rows: Sequence[int] | NDArray[np.integer]) -> Batch:
        """Copy some windows out, pictures as uint8 (B, n_obs, height, width, channels).

        Args:
            rows: Indices of windows, (B,).

        Raises:
            DamagedEpisodeError: A picture was changed after it was written; names the episode.
        """
        found = self._windows.batch(rows)
        observations = {key: value for key, value in found.observations.items() if key != _ROW}
        places = found.observations[_ROW]
        owners = self._windows.trajectory[np.asarray(rows)]
        for camera in self.cameras:
            taken = [
                self._pictures.get(self.ids[owner], camera, int(place))
                for owner, history in zip(owners.tolist(), places, strict=True)
                for place in history
            ]
            observations[camera] = np.stack(taken).reshape(*places.shape, *taken[0].shape)
        return Batch(observations, found.actions, found.mask, found.tasks)

    def close(self) -> None:
        """Close the files."""
        self._pictures.close()

    def __enter__(self) -> Self:
        """Enter with the files open."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.close()

    def _trajectory(
        self, store: EpisodeStore, id_: str, keys: Collection[str] | None, sources: Collection[str] | None
    ) -> Trajectory:
        episode = store.read(id_, pictures=False)
        rate = (store.action_spec or {}).get("rate_hz")
        found = Trajectory.of(episode, keys, sources=sources, rate_hz=rate)
        chosen = {k: rows for k, rows in found.observations.items() if keys is None or k in keys}
        numbers = np.arange(len(episode) + 1)
        return replace(found, observations={**chosen, _ROW: numbers})


class _PictureCache:
    """Pictures of a store, the ones used last kept unpacked, and the files used last kept open."""

    def __init__(self, store: EpisodeStore, memory_bytes: int) -> None:
        self._store = store
        self._room = memory_bytes
        self._kept: OrderedDict[tuple[str, str, int], NDArray[np.uint8]] = OrderedDict()
        self._files: OrderedDict[tuple[str, str], Pictures] = OrderedDict()

    def get(self, id_: str, camera: str, row: int) -> NDArray[np.uint8]:
        """One picture (height, width, channels); a view of what is kept, to be copied."""
        place = (id_, camera, row)
        found = _used(self._kept, place)
        if found is None:
            try:
                found = self._file(id_, camera)[row]
            except (PictureError, OSError) as error:
                raise DamagedEpisodeError(
                    f"Episode {id_} is damaged: {camera}, {error}. Restore it from a copy or remove it; the "
                    "other episodes are not affected."
                ) from error
            self._keep(place, found)
        return found

    def close(self) -> None:
        """Close the files and forget the pictures."""
        while self._files:
            self._files.popitem()[1].close()
        self._kept.clear()

    def _file(self, id_: str, camera: str) -> Pictures:
        place = (id_, camera)
        opened = _used(self._files, place)
        if opened is None:
            opened = self._files[place] = self._store.pictures(id_, camera)
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)[1].close()
        return opened

    def _keep(self, place: tuple[str, str, int], picture: NDArray[np.uint8]) -> None:
        if picture.nbytes > self._room and not self._kept:
            return
        self._kept[place] = picture
        self._room -= picture.nbytes
        while self._room < 0:
            self._room += self._kept.popitem(last=False)[1].nbytes


def _used[K: Hashable, V](kept: OrderedDict[K, V], key: K) -> V | None:
    found = kept.get(key)
    if found is not None:
        kept.move_to_end(key)
    return found
