"""Proof that an episode exists somewhere else: where it went, and what exactly went there.

Receipts lie in the store beside the episodes (``.receipts/<id>.json``). Each names the content that was
exported or uploaded by its checksum, so that an episode that was recorded anew under the same id has none,
and of an export its files, so that something else in the same place is no copy.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from data.episode_folder import GROUP_FILE, inside, read_facts
from data.errors import DamagedEpisodeError, StoreError
from data.manifest import atomic_write_json, sha256_bytes, sha256_file
from data.steps import check_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from data.store import EpisodeStore

type Kind = Literal["exported", "uploaded"]
FOLDER = ".receipts"
_SHA256_DIGITS = 64


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """One copy of an episode.

    Attributes:
        kind: ``exported`` to a file or folder that can be looked at, or ``uploaded`` to another machine.
        target: Path of the export, absolute, or address of the upload.
        format: Format of the copy.
        content: `content_hash` of the episode that was copied.
        wall_time: When it was whole, s since 1970-01-01 UTC.
        lost: What the copy does not keep, one sentence each.
        files: `fingerprint` of an export when it was whole; empty for an upload.
    """

    kind: Kind
    target: str
    format: str
    content: str
    wall_time: float
    lost: tuple[str, ...] = ()
    files: str = ""

    def __post_init__(self) -> None:
        """Check the kind; a list of losses, as JSON gives it, becomes a tuple."""
        object.__setattr__(self, "lost", tuple(map(str, self.lost)))
        if self.kind not in get_args(Kind.__value__):
            raise ValueError(f"kind is {self.kind!r}; allowed: {', '.join(get_args(Kind.__value__))}.")

    def stands(self, id_: str) -> bool:
        """Whether the copy of an episode is there as it was written, as far as can be told from here."""
        return self.kind == "uploaded" or (bool(self.files) and self.files == fingerprint(self.target, id_))


def fingerprint(target: Path | str, id_: str) -> str:
    """SHA-256 of the names, sizes and times of change of the files of an export; empty where there are none.

    Args:
        target: The export.
        id_: Which episode counts, where the export has a folder of its own for each.
    """
    target = Path(target)
    place = target / id_ if (target / id_).is_dir() else target
    found = sorted(path for path in (place, *place.rglob("*")) if path.is_file())
    listed = [(path.relative_to(target).as_posix(), path.stat()) for path in found]
    facts = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in listed]
    return sha256_bytes(json.dumps(facts).encode()) if facts else ""


def content_hash(store: EpisodeStore, id_: str) -> str:
    """SHA-256 of everything that an episode holds: changes when any byte of it does.

    Files that the episode lists with a checksum are taken by that; the others (pictures) are read.

    Raises:
        KeyError: There is no such episode.
        DamagedEpisodeError: The list or a file is missing, or the list was changed.
    """
    if id_ not in store:
        raise KeyError(f"No episode {id_!r} in {store.path}, which holds {len(store)}.")
    folder = store.path / check_id(id_)
    listed = read_facts(folder)["files"]
    sums = {}
    for name, (_, checksum) in sorted(listed.items()):
        try:
            known = len(str(checksum)) == _SHA256_DIGITS
            sums[name] = checksum if known else sha256_file(inside(folder, name))
        except OSError as error:
            raise DamagedEpisodeError(
                f"Episode {id_} is damaged: {name} cannot be read ({error})."
            ) from error
    return sha256_bytes(json.dumps([sha256_file(folder / GROUP_FILE), sums]).encode())


def add_receipt(
    store: EpisodeStore,
    id_: str,
    *,
    kind: Kind,
    target: str,
    format: str,  # noqa: A002 - the usual word
    content: str,
    lost: Sequence[str] = (),
) -> Receipt:
    """Note that a whole copy of an episode exists.

    Args:
        store: Where the episode lies.
        id_: Which episode.
        kind: Exported or uploaded.
        target: Path or address of the copy; a path becomes absolute.
        format: Format of the copy.
        content: `content_hash` from before the episode was read for the copy.
        lost: What the copy does not keep, one sentence each.

    Raises:
        StoreError: The receipt cannot be written.
    """
    target = str(Path(target).resolve()) if kind == "exported" else target
    made = Receipt(
        kind=kind,
        target=target,
        format=format,
        content=content,
        wall_time=time.time(),
        lost=tuple(lost),
        files=fingerprint(target, id_) if kind == "exported" else "",
    )
    kept = [receipt for receipt in receipts(store, id_) if receipt.target != made.target]
    path = _path(store, id_)
    try:
        path.parent.mkdir(exist_ok=True)
        atomic_write_json(path, {"episode": id_, "receipts": [asdict(one) for one in (*kept, made)]})
    except OSError as error:
        raise StoreError(f"The receipt of episode {id_} cannot be written to {path}: {error}.") from error
    return made


def receipts(store: EpisodeStore, id_: str) -> list[Receipt]:
    """Every receipt of an episode, of other content under the same id too.

    Raises:
        StoreError: The file of receipts is broken.
    """
    path = _path(store, id_)
    try:
        entries = json.loads(path.read_text())["receipts"]
        return [Receipt(**entry) for entry in entries]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path} is no file of receipts ({error!r}); remove it, then export again."
        ) from error


def proof(store: EpisodeStore, id_: str) -> Receipt | None:
    """A receipt for exactly the content that lies here, whose copy still is what it was; None without one.

    Raises:
        StoreError: The episode or its receipts cannot be read.
    """
    content = content_hash(store, id_)
    fitting = (r for r in receipts(store, id_) if r.content == content and r.stands(id_))
    return next(fitting, None)


def _path(store: EpisodeStore, id_: str) -> Path:
    return store.path / FOLDER / f"{check_id(id_)}.json"
