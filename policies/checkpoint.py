"""Policies on disk: one JSON file that says what it is, one safetensors file that holds the tensors.

::

    policy.json                    format, class, configuration, features, action specification, checksums
    policy-<checksum>.safetensors  parameters and buffers, normalisation included

The JSON file is replaced last and in one step, so that a killed save leaves the old policy or the new one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import safetensors
import safetensors.torch
import torch

from data.features import differences
from data.manifest import atomic_write_bytes, atomic_write_json, sha256_bytes
from policies.device import check_device
from policies.registry import reference_of, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from data.features import Feature
    from hardware.action_spec import ActionSpec
    from policies.policy import Policy

FORMAT = "robot-rl policy"
VERSION = 1
_FILE = "policy.json"
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says why and what to do."""


@runtime_checkable
class Savable(Protocol):
    """What a policy needs to be saved: JSON facts, and named tensors as every `torch.nn.Module` has."""

    def payload(self) -> dict[str, Any]:
        """Return everything but the tensors, as JSON types."""
        ...

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Build the policy that `payload` describes."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return the named tensors."""
        ...


def save(policy: Policy, folder: Path | str) -> Path:
    """Write a policy; an older one in the same folder is replaced.

    Args:
        policy: see `Savable`.
        folder: made if missing.

    Returns:
        The folder.

    Raises:
        TypeError: if the policy cannot be saved.
    """
    if not isinstance(policy, Savable):
        raise TypeError(
            f"policy {policy.spec.name!r} cannot be saved: it lacks payload, from_payload or state_dict"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = separate_tensors(policy.state_dict())
    content = safetensors.torch.save(tensors)
    checksum = sha256_bytes(content)
    file = folder / f"policy-{checksum[:16]}.safetensors"
    atomic_write_bytes(file, content)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "class": reference_of(type(policy)),
        "payload": policy.payload(),
        "tensors": {"file": file.name, "sha256": checksum},
        "hash": policy.hash(),
        "written_with": {"torch": torch.__version__, "safetensors": safetensors.__version__},
    }
    atomic_write_json(folder / _FILE, header)
    for old in folder.glob("policy-*.safetensors"):
        if old != file:
            old.unlink()
    return folder


def load(
    folder: Path | str,
    device: torch.device | str = "cpu",
    *,
    features: Mapping[str, Feature] | None = None,
    action_spec: ActionSpec | None = None,
) -> Policy:
    """Read a policy, frozen and in evaluation mode.

    Args:
        folder: that `save` wrote.
        device: where to put it.
        features: what the environment or data set offers; refused if the policy needs something else.
        action_spec: of the environment or data set; refused if the policy acts otherwise.

    Raises:
        CheckpointError: if there is no policy, it is a pickle, of another format, damaged, or made for other
            features or actions; each difference is named.
        ValueError: if the device does not work here.
    """
    folder = Path(folder)
    header = read_header(folder)
    policy = _build(folder, header)
    refuse_misfit(folder, policy, features, action_spec)
    assert isinstance(policy, torch.nn.Module)
    policy.requires_grad_(False).eval().to(check_device(device))
    if policy.hash() != header["hash"]:
        raise CheckpointError(
            f"{folder}: the policy's hash is not the saved one: another version of its class is installed"
        )
    return policy


def separate_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors on the CPU of which no two share memory, as safetensors files ask; values are kept.

    Args:
        tensors: by name; a network may hold one under two names.
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        found[name] = plain.clone() if place in seen else plain
        seen.add(place)
    return found


def read_tensors(file: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Return the tensors of a safetensors file.

    Args:
        file: what `safetensors` wrote.
        device: where to put them.

    Raises:
        CheckpointError: if it is missing, cut off or something else, such as a pickle.
    """
    try:
        return safetensors.torch.load_file(file, device=str(device))
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{file} is damaged ({error}): restore it from a copy, or remove its folder"
        ) from error


def read_header(folder: Path) -> dict[str, Any]:
    """Return the JSON part of a saved policy, checked for format and version.

    Raises:
        CheckpointError: see `load`.
    """
    path = folder / _FILE
    if not path.is_file():
        candidates = [folder] if folder.is_file() else folder.glob("*") if folder.is_dir() else []
        pickles = sorted(item.name for item in candidates if item.suffix in _PICKLES)
        if pickles:
            raise CheckpointError(
                f"{folder} holds {', '.join(pickles)}: pickled weights can run code and are refused; "
                "convert them to safetensors and save them through policies.checkpoint.save"
            )
        raise CheckpointError(f"{folder} holds no policy ({_FILE} is missing); was the training finished?")
    try:
        header: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = (header["format"], int(header["version"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged or no policy ({error!r}): restore it from a copy, or train again"
        ) from error
    if found != (FORMAT, VERSION):
        raise CheckpointError(
            f"{path} has format {found[0]!r} version {found[1]}; this program reads {FORMAT!r} "
            f"version {VERSION}"
        )
    return header


def refuse_misfit(
    source: Path | str,
    policy: Policy,
    features: Mapping[str, Feature] | None,
    action_spec: ActionSpec | None,
) -> None:
    """Refuse a policy that was made for other features or actions.

    Args:
        source: where it is from, for the message.
        policy: the policy.
        features: what there is; None: not compared.
        action_spec: what actions are; None: not compared.

    Raises:
        CheckpointError: naming each difference.
    """
    lines: list[str] = []
    if features is not None:
        lines += differences(policy.spec.features, features, expected_by="the policy")
    if action_spec is not None:
        lines += action_differences(policy.spec.action_spec, action_spec)
    if lines:
        raise CheckpointError(f"the policy in {source} does not fit: " + "; ".join(lines))


def action_differences(policy: ActionSpec, offered: ActionSpec) -> list[str]:
    """Say in words how two action specifications differ in size, names, units or rate.

    Args:
        policy: what the policy was trained for.
        offered: what the environment or data set has.
    """
    pairs: list[tuple[str, object, object]] = [
        ("size", policy.size, offered.size),
        ("names", policy.names, offered.names),
        ("units", policy.units, offered.units),
        ("modes", _modes(policy), _modes(offered)),
        ("rate", policy.rate_hz, offered.rate_hz),
    ]
    return [
        f"action {what} is {have}, but the policy has {want}" for what, want, have in pairs if want != have
    ]


def _modes(spec: ActionSpec) -> tuple[str, ...]:
    return tuple(group.mode for group in spec.groups)


def _build(folder: Path, header: dict[str, Any]) -> Policy:
    try:
        entry = header["tensors"]
        content = (folder / Path(entry["file"]).name).read_bytes()
        checksum, saved = sha256_bytes(content), entry["sha256"]
        cls, payload, _ = header["class"], header["payload"], header["hash"]
    except (KeyError, TypeError, OSError) as error:
        raise CheckpointError(
            f"{folder / _FILE} is incomplete ({error!r}): restore the folder from a copy, or train again"
        ) from error
    if checksum != saved:
        raise CheckpointError(
            f"{folder / entry['file']} is damaged, its checksum is not the recorded one: restore it from a "
            "copy, or train again"
        )
    policy_class = resolve(cls)
    if not issubclass(policy_class, torch.nn.Module) or not hasattr(policy_class, "from_payload"):
        raise CheckpointError(
            f"class {cls!r} of {folder} cannot be loaded: it is no module with from_payload"
        )
    try:
        policy: Policy = policy_class.from_payload(payload)
        assert isinstance(policy, torch.nn.Module)
        policy.load_state_dict(safetensors.torch.load(content))
    except (RuntimeError, KeyError, ValueError, TypeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{folder} does not fit its class {cls!r}: {error}") from error
    return policy
