"""Addresses of ``robot-rl serve`` as a source of policies; starts without websockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.loaders import Loader

if TYPE_CHECKING:
    import torch

    from policies.policy import Policy


def _matches(source: str) -> bool:
    return source.startswith(("ws://", "wss://"))


def _load(source: str, device: torch.device | str, options: dict[str, Any]) -> Policy:
    from data.formats.extras import require

    del device  # the server chose its own
    for module in ("msgpack", "websockets"):
        require(module, "serve", "A policy behind a server")
    from policies.remote import RemotePolicy, RemoteSettings

    return RemotePolicy(source, RemoteSettings(**options))


LOADER = Loader(
    "remote",
    "the address of a robot-rl serve, ws://HOST:PORT",
    _matches,
    _load,
    "policies.remote:RemoteSettings",
)
"""See `policies.loaders`."""
