"""What ``robot-rl serve`` is told, and the token that clients must show."""

from __future__ import annotations

import hmac
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from robot_rl.seeds import MOST_ROWS

TOKEN_VARIABLE = "ROBOT_RL_TOKEN"  # noqa: S105 - the name of a variable
SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class ServeConfig:
    """Serve a policy to robots, simulations and other programs through a websocket."""

    policy: Path
    """folder of the policy, or whatever else --policy takes"""
    refiner: tuple[Path, ...] = ()
    """folders of what refines it: noise, hooks, selector; a corrector runs on the robot and is refused"""
    host: str = "127.0.0.1"
    """address to listen at; any but this machine's own loopback needs a token"""
    port: int = 8765
    """port to listen at; 0 takes a free one and says which"""
    token_file: Path | None = None
    """file with the token that clients must show; without it the variable ROBOT_RL_TOKEN, if set"""
    device: str = "cpu"
    """torch device of the networks"""
    task: str = ""
    """task that says units, names and rate where a policy of others does not; empty asks no task"""
    clients: int = 16
    """most clients at once"""
    rows: int = 64
    """most rows in one request"""
    megabytes: int = 64
    """size up to which a message is read, MB"""

    def __post_init__(self) -> None:
        """Check the values."""
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}, allowed is 0 to 65535")
        if not 1 <= self.rows <= MOST_ROWS:
            raise ValueError(f"rows is {self.rows}, allowed is 1 to {MOST_ROWS}")
        for name in ("clients", "megabytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed is 1 or more")


def read_token(config: ServeConfig) -> bytes:
    """Return the token that clients must show; empty where none is asked for.

    Raises:
        ValueError: none is set although others than this machine could connect, or it is too short.
        OSError: its file cannot be read.
    """
    if config.token_file is None:
        token, origin = os.environ.get(TOKEN_VARIABLE, ""), f"the variable {TOKEN_VARIABLE}"
    else:
        token, origin = config.token_file.read_text(encoding="utf-8").strip(), str(config.token_file)
    if token and (len(token) < SHORTEST_TOKEN or not token.isascii() or any(map(str.isspace, token))):
        raise ValueError(
            f"the token in {origin} has {len(token)} characters; at least {SHORTEST_TOKEN} ASCII characters "
            "without spaces are needed: openssl rand -hex 32 > token"
        )
    if not token and (config.token_file is not None or not is_loopback(config.host)):
        raise ValueError(
            f"host is {config.host}, where other machines can connect, and there is no token"
            if config.token_file is None
            else f"the token in {origin} is empty"
            ": openssl rand -hex 32 > token, then --token-file token here and ROBOT_RL_TOKEN at the client"
        )
    return token.encode()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shows_token(header: str | None, token: bytes) -> bool:
    """Whether an Authorization header shows the token; takes the same time wherever they differ.

    Args:
        header: such as ``Bearer TOKEN``; None if there is none.
        token: what is asked for; empty lets everybody in.
    """
    given = (header or "").removeprefix("Bearer ").encode(errors="replace")
    return not token or hmac.compare_digest(given, token)
