"""Saving and loading a refiner: a manifest and one safetensors file per part.

A part is found again by ``module:Class``, so that a part of yours needs no edit here. It gives ``payload()``
(JSON types) and ``tensors()``, and is rebuilt by ``from_payload(payload, tensors)``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from safetensors.torch import save_file

from data.imports import ImportPathError, import_object, import_path
from data.manifest import atomic_write_json
from policies.checkpoint import read_tensors
from policies.hashing import tensors_hash
from robot_rl.provenance import versions
from robot_rl.refiner import Refiner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

FORMAT = 1
SLOTS = ("student", "noise", "hooks", "select", "correct")
"""Places a part can take, in the order they act."""


@runtime_checkable
class SavedPart(Protocol):
    """A part that can be written and read back."""

    def payload(self) -> dict[str, Any]:
        """Configuration, JSON types only."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything else, by name."""
        ...

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild what `payload` and `tensors` describe.

        Raises:
            ValueError: They do not belong together.
        """
        ...


def save_refiner(folder: Path | str, refiner: Refiner, facts: Mapping[str, Any] | None = None) -> Refiner:
    """Write a refiner; returns it with its version, the hash of all parts.

    Args:
        folder: Made if it is missing.
        refiner: Every part must be a `SavedPart`.
        facts: Further JSON values for the manifest.

    Raises:
        TypeError: A part cannot be saved.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    entries: list[dict[str, Any]] = []
    version = version_of(refiner)
    for slot, name, part in _parts(refiner):
        file = f"{name}.safetensors"
        partial = folder / f".{file}.partial"
        save_file(_tensors(part), partial)
        partial.replace(folder / file)
        entries.append(
            {"slot": slot, "kind": import_path(type(part)), "file": file, "payload": part.payload()}
        )
    all_facts = {**refiner.facts, **(facts or {})}
    manifest = {
        "format": FORMAT,
        "version": version,
        "base_hash": refiner.base_hash,
        "parts": entries,
        "versions": versions(),
        "facts": all_facts,
    }
    atomic_write_json(folder / "refiner.json", manifest)
    return replace(refiner, version=version, facts=all_facts)


def version_of(refiner: Refiner) -> str:
    """Hash of the tensors of all parts; what `save_refiner` gives as version.

    Raises:
        TypeError: A part cannot be saved.
    """
    named = [(name, _tensors(part)) for _, name, part in _parts(refiner)]
    return tensors_hash({f"{name}.{key}": value for name, tensors in named for key, value in tensors.items()})


def _tensors(part: SavedPart) -> dict[str, Tensor]:
    return {key: value.detach().cpu().contiguous() for key, value in part.tensors().items()}


def load_refiner(folder: Path | str, *, device: str = "cpu") -> Refiner:
    """Read a refiner back.

    Args:
        folder: Where `save_refiner` wrote, or a refinement's run directory.
        device: Where its networks run.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is of another format, damaged, was changed, or a part cannot be found.
    """
    folder = Path(folder)
    if not (folder / "refiner.json").exists() and (folder / "refiner" / "refiner.json").exists():
        folder = folder / "refiner"
    file = folder / "refiner.json"
    if not file.exists():
        raise FileNotFoundError(
            f"{folder} holds no refiner (no refiner.json); give what `robot-rl refine` wrote."
        )
    try:
        return _read(folder, json.loads(file.read_text(encoding="utf-8")), device)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"The refiner in {folder} is damaged ({error!r}); restore it from a copy, or refine again."
        ) from error


def _read(folder: Path, manifest: Mapping[str, Any], device: str) -> Refiner:
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"{folder / 'refiner.json'} has format {manifest.get('format')}; this version reads {FORMAT}."
        )
    slots: dict[str, Any] = {}
    hooks: list[Any] = []
    everything: dict[str, Tensor] = {}
    for entry in manifest["parts"]:
        tensors = read_tensors(folder / Path(entry["file"]).name, device)
        part = _find(entry["kind"]).from_payload(entry["payload"], tensors)
        everything |= {f"{entry['file'].removesuffix('.safetensors')}.{k}": v for k, v in tensors.items()}
        if entry["slot"] == "hooks":
            hooks.append(part)
        else:
            slots[entry["slot"]] = part
    if tensors_hash(everything) != manifest["version"]:
        raise ValueError(
            f"The tensors in {folder} are not those of its manifest; the refiner was changed or damaged."
        )
    return Refiner(
        **slots,
        hooks=tuple(hooks),
        base_hash=manifest["base_hash"],
        version=manifest["version"],
        facts=manifest["facts"],
    )


def _parts(refiner: Refiner) -> list[tuple[str, str, SavedPart]]:
    """Slot, name and part of everything a refiner holds, in order."""
    found: list[tuple[str, str, Any]] = []
    for slot in SLOTS:
        value = getattr(refiner, slot)
        if slot == "hooks":
            found += [(slot, f"hook{index}", hook) for index, hook in enumerate(value)]
        elif value is not None:
            found.append((slot, slot, value))
    for _, _, part in found:
        if not isinstance(part, SavedPart):
            raise TypeError(f"{type(part).__name__} has no payload() and tensors(), so it cannot be saved.")
    return found


def _find(kind: str) -> type[SavedPart]:
    try:
        part = import_object(kind)
    except ImportPathError as error:
        raise ValueError(f"The refiner's part {error}") from error
    if not (isinstance(part, type) and issubclass(part, SavedPart)):
        raise TypeError(f"{kind!r} is no refiner part: it lacks payload, tensors or from_payload.")
    return part
