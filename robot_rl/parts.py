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
from data.manifest import atomic_write_json, sha256_bytes
from policies.checkpoint import read_tensors, separate_tensors
from policies.hashing import tensors_hash
from robot_rl.provenance import versions
from robot_rl.refiner import Refiner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

FORMAT = 2
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
    """Hash of class, configuration and tensors of all parts; what `save_refiner` gives as version.

    Raises:
        TypeError: A part cannot be saved.
    """
    return _version(
        [(name, import_path(type(part)), part.payload(), _tensors(part)) for _, name, part in _parts(refiner)]
    )


def _version(parts: Sequence[tuple[str, str, Mapping[str, Any], Mapping[str, Tensor]]]) -> str:
    """Hash of (name, class, payload, tensors) of each part."""
    tensors = {f"{name}.{key}": value for name, _, _, found in parts for key, value in found.items()}
    described = json.dumps([[name, kind, payload] for name, kind, payload, _ in parts], sort_keys=True)
    return sha256_bytes(f"{described}\n{tensors_hash(tensors)}".encode())


def load_refiners(folders: Sequence[Path | str], *, device: str = "cpu") -> Refiner:
    """Read several refiners and put them together; see `compose`.

    Args:
        folders: As `load_refiner` takes them.
        device: Where their networks run.

    Raises:
        FileNotFoundError: There is no refiner in one of them.
        ValueError: One cannot be read, or they cannot act together.
    """
    return compose([load_refiner(folder, device=device) for folder in folders])


def compose(refiners: Sequence[Refiner]) -> Refiner:
    """Put refiners of one base together: all hooks by their `order`, and one of each other part.

    Raises:
        ValueError: There is none, two fill the same place, or they were made for different bases.
    """
    if len(refiners) == 1:
        return refiners[0]
    bases = {refiner.base_hash for refiner in refiners if refiner.base_hash}
    if len(bases) != 1 and (bases or not refiners):
        raise ValueError(
            f"Refiners of {len(bases)} bases cannot act together ({', '.join(sorted(bases)) or 'none given'})"
            "; give refiners of one base."
        )
    single: dict[str, Any] = {}
    for slot in ("student", "noise", "select", "correct"):
        parts = [part for refiner in refiners if (part := getattr(refiner, slot)) is not None]
        if len(parts) > 1:
            names = ", ".join(type(part).__name__ for part in parts)
            raise ValueError(f"Only one part can {slot!r}, not {len(parts)} ({names}); leave one out.")
        single[slot] = parts[0] if parts else None
    hooks = sorted((hook for refiner in refiners for hook in refiner.hooks), key=lambda hook: hook.order)
    composed = Refiner(**single, hooks=tuple(hooks), base_hash=next(iter(bases), ""))
    facts = {"composed": [refiner.version for refiner in refiners]}
    return replace(composed, version=version_of(composed), facts=facts)


def _tensors(part: SavedPart) -> dict[str, Tensor]:
    return separate_tensors(part.tensors())


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
    found: list[tuple[str, str, Mapping[str, Any], Mapping[str, Tensor]]] = []
    for entry in manifest["parts"]:
        tensors = read_tensors(folder / Path(entry["file"]).name, device)
        part = _find(entry["kind"]).from_payload(entry["payload"], tensors)
        name = entry["file"].removesuffix(".safetensors")
        found.append((name, entry["kind"], entry["payload"], tensors))
        if entry["slot"] == "hooks":
            hooks.append(part)
        else:
            slots[entry["slot"]] = part
    if _version(found) != manifest["version"]:
        raise ValueError(
            f"The parts in {folder} are not those that its manifest's version stands for; the refiner was "
            "changed or damaged."
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
