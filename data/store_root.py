"""What a whole store says of its episodes: the ``zarr.json`` of its folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from data.episode_folder import digest_of
from data.errors import StoreError
from data.features import Features, differences, from_array, from_json, to_json
from data.manifest import make_folder, sync_folder, write_new_bytes
from data.plain import plain
from data.recording.arriving import other_width
from data.zarr_files import ZarrFileError, group_attributes, group_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from data.records import Episode

FORMAT = "robot-rl episodes"
_AGAIN = "Restore it from a copy, or let `robot-rl data recover` make it again from the episodes."


def is_store(folder: Path) -> bool:
    """Whether the ``zarr.json`` of a folder says that it is an episode store."""
    try:
        attributes = json.loads((folder / "zarr.json").read_bytes())["attributes"]
        return bool(attributes["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def action_size(action_spec: Mapping[str, Any] | None) -> int | None:
    """How many numbers an action has; None where its specification does not say."""
    groups = (action_spec or {}).get("groups")
    return sum(int(group["size"]) for group in groups) if groups else None


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
            StoreError: There is no store here, or its file was changed.
        """
        try:
            root = group_attributes(self._file.read_bytes())
        except OSError:
            raise StoreError(
                f"There is no episode store at {self._path}; check the path, or collect episodes first. "
                f"Where only {self._file.name} is lost, `robot-rl data recover` makes it again from episodes."
            ) from None
        except ZarrFileError as error:
            raise StoreError(f"{self._path} is no episode store: {error}. {_AGAIN}") from error
        if root.get("format") != FORMAT:
            raise StoreError(f"{self._path} is a Zarr group but no episode store.")
        if "sha256" in root and root.pop("sha256") != digest_of(root):  # earlier releases wrote none
            raise StoreError(
                f"{self._file} was changed after it was written: what the store says of its features and "
                f"actions cannot be trusted. The episodes beside it are not affected. {_AGAIN}"
            )
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
        others = any(not entry.name.startswith(".") for entry in self._path.iterdir())
        if others and not self.exists:  # it may have come at this moment
            raise StoreError(
                f"{self._path} holds other files and no {self._file.name} of a store; choose an empty or new "
                "folder. Where these are episodes, `robot-rl data recover` makes it again from them."
            )
        attributes = {"format": FORMAT, "version": 1, **self.given}
        content = group_bytes({**attributes, "sha256": digest_of(attributes)})
        if not write_new_bytes(self._file, content):  # another program was first: what it declares counts
            self._compare(self.read())
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
        """Refuse an episode that is not what the store declares.

        Raises:
            StoreError: Its steps and streams lack a declared feature, or hold another form of it; it has an
                observation that is not declared, so that nobody would know what it means; or its actions have
                another length. Names each.
        """
        width = action_size(self.declared("action_spec"))
        if width not in {None, episode.action.shape[1]}:
            raise StoreError(other_width(episode.id, episode.action.shape[1], width))
        declared = self.declared("features")
        if not declared:
            return
        found = {key: from_array(stream.values[0]) for key, stream in episode.streams.items() if len(stream)}
        found |= {key: from_array(rows[0]) for key, rows in episode.observations.items()}
        lines = differences(from_json(declared), found, expected_by="the store", found_in="the episode")
        lines += [f"{key!r} is not declared." for key in episode.observations if key not in declared]
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
