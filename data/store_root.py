"""What a whole store says of its episodes: the ``zarr.json`` of its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.errors import StoreError
from data.features import Features, differences, from_array, from_json, to_json
from data.manifest import atomic_write_bytes, make_folder, sync_folder
from data.plain import plain
from data.zarr_files import ZarrFileError, group_attributes, group_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from data.records import Episode

_FORMAT = "robot-rl episodes"


class StoreRoot:
    """Declared features and action of a store, on disk or about to be.

    Args:
        path: The folder.
        file: Its ``zarr.json``.
        features: What is going to be written, if it was said.
        action_spec: What its actions mean, if it was said.

    Raises:
        StoreError: The folder holds something else, or episodes with other features.
    """

    def __init__(
        self, path: Path, file: str, features: Features | None, action_spec: Mapping[str, Any] | None
    ) -> None:
        self._path = path
        self._file = path / file
        self.given: dict[str, Any] = {
            "features": None if features is None else to_json(features),
            "action_spec": None if action_spec is None else plain(dict(action_spec)),
        }
        if self.exists:
            self._compare(self.read())

    @property
    def exists(self) -> bool:
        """Whether there is one."""
        return self._file.is_file()

    def read(self) -> dict[str, Any]:
        """Attributes of the store.

        Raises:
            StoreError: There is no store here.
        """
        try:
            root = group_attributes(self._file.read_bytes())
        except OSError:
            raise StoreError(
                f"There is no episode store at {self._path}; check the path, or collect episodes first."
            ) from None
        except ZarrFileError as error:
            raise StoreError(f"{self._path} is no episode store: {error}.") from error
        if root.get("format") != _FORMAT:
            raise StoreError(f"{self._path} is a Zarr group but no episode store.")
        return root

    def create(self, *, durable: bool = False) -> None:
        """Make the folder and the file where they are missing.

        Args:
            durable: Whether to wait until the disk itself has them.

        Raises:
            StoreError: The folder holds other files.
            OSError: It cannot be written.
        """
        if self.exists:
            return
        make_folder(self._path, durable=durable)
        if any(not entry.name.startswith(".") for entry in self._path.iterdir()):
            raise StoreError(
                f"{self._path} holds other files and no episodes; choose an empty or new folder."
            )
        atomic_write_bytes(self._file, group_bytes({"format": _FORMAT, "version": 1, **self.given}))
        if durable:
            sync_folder(self._path)

    def declared(self, what: str) -> Any:  # noqa: ANN401 - JSON
        """``"features"`` or ``"action_spec"`` as JSON: the store's, else what was said, else None."""
        stored = self.read().get(what) if self.exists else None
        return self.given[what] if stored is None else stored

    def context(self) -> dict[str, Any]:
        """All that is declared, as every episode repeats it."""
        return {what: self.declared(what) for what in self.given}

    def refuse_misfit(self, episode: Episode) -> None:
        """Refuse an episode whose steps and streams lack a declared feature or hold another form of it.

        Raises:
            StoreError: It does; names the feature.
        """
        declared = self.declared("features")
        if declared is None:
            return
        found = {key: from_array(stream.values[0]) for key, stream in episode.streams.items() if len(stream)}
        found |= {key: from_array(rows[0]) for key, rows in episode.observations.items()}
        lines = differences(from_json(declared), found, expected_by="the store", found_in="the episode")
        if lines:
            raise StoreError(f"Episode {episode.id} does not fit the store: " + " ".join(lines))

    def _compare(self, root: Mapping[str, Any]) -> None:
        given, stored = self.given["features"], root.get("features")
        if given is not None and stored is not None:
            lines = differences(
                from_json(given), from_json(stored), expected_by="the new episodes", found_in="the store"
            )
            lines += [f"{key!r} is new." for key in stored.keys() - given.keys()]
            if lines:
                raise StoreError(f"{self._path} holds episodes with other features: " + " ".join(lines))
        given, stored = self.given["action_spec"], root.get("action_spec")
        if given is not None and stored is not None and given != stored:
            raise StoreError(f"{self._path} holds episodes with another action: {stored}, not {given}.")
