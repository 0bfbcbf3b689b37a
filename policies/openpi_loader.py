"""Servers that speak openpi's protocol as a source of policies; starts without websockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.loaders import Loader

if TYPE_CHECKING:
    import torch

    from policies.policy import Policy

FILE = "openpi.json"
"""In a folder that stands for a server: "address" and what `policies.openpi.OpenPiSettings` holds."""
_SCHEME = "openpi://"


def _matches(source: str) -> bool:
    return source.startswith(_SCHEME) or (Path(source) / FILE).is_file()


def _load(source: str, device: torch.device | str, options: dict[str, Any]) -> Policy:
    from data.formats.extras import require

    del device  # the server chose its own
    for module in ("msgpack", "websockets"):
        require(module, "serve", "A policy behind an openpi server")
    from policies.openpi import OpenPiPolicy, OpenPiSettings

    if source.startswith(_SCHEME):
        address = source.replace(_SCHEME, "ws://", 1)
    else:
        address, said = _read(Path(source) / FILE)
        options = {**said, **options}
    return OpenPiPolicy(address, OpenPiSettings(**options))


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    """Address and settings that a file states."""
    from data.config import from_dict
    from data.features import from_json
    from hardware.action_spec import ActionSpec
    from policies.checkpoint import CheckpointError
    from policies.openpi import OpenPiSettings

    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        address = str(said.pop("address"))
        described = {
            "features": from_json(said.pop("features", {})),
            "action_spec": ActionSpec.from_json(said.pop("action_spec")) if "action_spec" in said else None,
        }
        plain = from_dict(OpenPiSettings, said)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{file} does not describe an openpi server: {error}") from error
    stated = {name: getattr(plain, name) for name in said}
    return address, stated | {name: value for name, value in described.items() if value}


LOADER = Loader(
    "openpi",
    "an openpi server: openpi://HOST:PORT, or a folder with openpi.json",
    _matches,
    _load,
    "policies.openpi:OpenPiSettings",
)
"""See `policies.loaders`."""
