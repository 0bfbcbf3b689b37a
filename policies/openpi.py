"""A policy behind a server that speaks openpi's protocol, as an opaque `Policy`.

The protocol (openpi's serving code and openpi-client 0.1.2): msgpack messages over a websocket. The server
sends its metadata when a client connects; then a map of named observations is answered by a map with
"actions" (H, A); a text answers what failed, and the connection ends. An array is a map with the byte keys
``__ndarray__``, ``data``, ``dtype`` and ``shape``. Nothing says which names, shapes and units a server
expects, so the caller does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import msgpack
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from data.features import Feature
from data.plain import plain
from hardware.action_spec import ActionSpec
from policies.checkpoint import CheckpointError
from policies.connection import Connection, Timeouts
from policies.openpi_wire import pack, unpack
from policies.policy import Policy, PolicyError, PolicySpec
from policies.request import batch_size

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import NDArray

    from policies.request import ChunkRequest, Condition


@dataclass(frozen=True)
class OpenPiSettings:
    """What an openpi server does not say of its policy.

    Attributes:
        keys: our key -> name in the server's observation, such as ``observation.state`` ->
            ``observation/state``; "task" for the text, which openpi calls ``prompt``.
        horizon: H, actions that the server returns.
        executed_steps: control steps after which a new chunk is due; 0: all of them.
        image_size: pictures are brought to this many pixels a side, with black bars; 0: as they are.
        api_key: that the server asks for; empty: none.
        timeouts: how long the server may take. It answers no pings while it computes.
        features: of our keys.
        action_spec: what the actions mean.
        default_features: the same, where `features` does not say it.
        default_action_spec: the same, where `action_spec` is None.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    horizon: int = 0
    executed_steps: int = 0
    image_size: int = 0
    api_key: str = ""
    timeouts: Timeouts = field(default_factory=lambda: Timeouts(dead=60.0))
    features: Mapping[str, Feature] = field(default_factory=dict)
    action_spec: ActionSpec | None = None
    default_features: Mapping[str, Feature] = field(default_factory=dict)
    default_action_spec: ActionSpec | None = None

    def spec(self, address: str) -> PolicySpec:
        """Return the policy's fixed facts.

        Raises:
            CheckpointError: something is not said.
        """
        known = {**self.default_features, **self.features}
        missing = [key for key in self.keys if key != "task" and key not in known]
        action_spec = self.action_spec or self.default_action_spec
        if not self.keys or self.horizon < 1 or missing or action_spec is None:
            raise CheckpointError(
                f"{address} does not say what its policy reads and returns, as no openpi server does; still "
                f"to be said: {_unsaid(self, missing, action_spec)}"
            )
        return PolicySpec(
            name="openpi",
            features={key: known[key] for key in self.keys if key != "task"},
            action_spec=action_spec,
            observation_steps=1,
            horizon=self.horizon,
            executed_steps=self.executed_steps or self.horizon,
            first_action=0,
            rate_hz=action_spec.rate_hz,
            reads_task="task" in self.keys,
        )


def _unsaid(settings: OpenPiSettings, missing: list[str], action_spec: ActionSpec | None) -> str:
    found = [] if settings.keys else ["keys={our key: its name}"]
    found += [] if settings.horizon > 0 else ["horizon=H"]
    found += [f"default_features of {', '.join(missing)}"] if missing else []
    return ", ".join(found + ([] if action_spec else ["default_action_spec=..."]))


class OpenPiPolicy(Policy):
    """Chunks of an openpi server, one row after the other.

    The server draws its noise itself, so the same observation does not give the same chunk twice, and its
    denoising is closed: correctors apply, guidance does not.

    Args:
        address: such as ``ws://host:8000``.
        settings: what the server does not say.

    Raises:
        PolicyAwayError: the server is not there.
        CheckpointError: the settings leave something unsaid.
    """

    def __init__(self, address: str, settings: OpenPiSettings) -> None:
        self.address, self._settings = address, settings
        self._spec = settings.spec(address)
        self._metadata: dict[str, Any] | None = None
        headers = {"Authorization": f"Api-Key {settings.api_key}"} if settings.api_key else {}
        self._connection = Connection(address, self._greet, headers=headers, timeouts=settings.timeouts)
        self._connection.open()

    @property
    def spec(self) -> PolicySpec:
        """As the settings say."""
        return self._spec

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the server says of itself."""
        return dict(self._metadata or {})

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        self._connection.close()

    def hash(self) -> str:
        """Hash of what the server says of itself and of the mapping; nobody tells its weights."""
        said = json.dumps([plain(self.metadata), dict(self._settings.keys)], sort_keys=True, default=str)
        return hashlib.sha256(f"openpi {said}".encode()).hexdigest()

    def chunk(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H Z"] | None = None,
        condition: Condition = None,
    ) -> Float[Tensor, "B H A"]:
        """Return one chunk per row; see `Policy.chunk`.

        Raises:
            PolicyAwayError: the server is lost, or no answer came in time.
            PolicyError: the server failed, or its actions are not those of the settings.
        """
        if noise is not None or condition is not None:
            raise ValueError(f"the openpi server at {self.address} takes neither noise nor a condition")
        if missing := [key for key in self._settings.keys if key not in request.observation]:
            raise ValueError(f"the observation lacks {missing}; policy 'openpi' reads them")
        rows = range(batch_size(request.observation))
        return torch.stack([self._row(request, row) for row in rows])

    def _row(self, request: ChunkRequest, row: int) -> Float[Tensor, "H A"]:
        sent: dict[str, Any] = {}
        for key, name in self._settings.keys.items():
            value = request.observation[key][row]
            sent[name] = self._picture(value[-1].numpy(force=True)) if isinstance(value, Tensor) else value
        reply = self._connection.exchange(pack(sent), self._read)
        actions = reply.get("actions")
        wanted = (self._spec.horizon, self._spec.action_size)
        if not isinstance(actions, np.ndarray) or actions.shape != wanted:
            found = actions.shape if isinstance(actions, np.ndarray) else f"only {sorted(map(str, reply))}"
            raise PolicyError(f"{self.address} answers with actions {found}; {wanted} is expected")
        if not np.isfinite(actions).all():
            raise PolicyError(f"{self.address} answers with actions that are not finite")
        return torch.from_numpy(actions.astype(np.float32))

    def _picture(self, value: NDArray[Any]) -> NDArray[Any]:
        size = self._settings.image_size
        return with_bars(value, size) if size and value.ndim == 3 and value.dtype == np.uint8 else value

    def _greet(self, data: bytes | str) -> None:
        metadata = self._read(data)
        if self._metadata is not None and plain(metadata) != plain(self._metadata):
            raise PolicyError(f"{self.address} serves another policy by now; load the policy anew")
        self._metadata = metadata

    def _read(self, data: bytes | str) -> dict[str, Any]:
        if isinstance(data, str):
            last = data.strip().splitlines()[-1:] or ["nothing"]
            raise PolicyError(f"the openpi server at {self.address} failed: {last[0]}")
        try:
            message = unpack(data)
        except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
            self._broken(str(error))
        if not isinstance(message, dict):
            self._broken(type(message).__name__)
        return message

    def _broken(self, what: str) -> NoReturn:
        raise PolicyError(f"{self.address} does not speak openpi's protocol: {what}")


def with_bars(picture: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return a picture (size, size, C) that shows all of it, with black bars where it is not square.

    Args:
        picture: (height, width, channels).
        size: pixels a side.
    """
    height, width = picture.shape[:2]
    if (height, width) == (size, size):
        return picture
    scale = size / max(height, width)
    inner = max(round(height * scale), 1), max(round(width * scale), 1)
    small = np.asarray(Image.fromarray(picture).resize(inner[::-1], Image.Resampling.BILINEAR))
    canvas = np.zeros((size, size, picture.shape[2]), np.uint8)
    top, left = (size - inner[0]) // 2, (size - inner[1]) // 2
    canvas[top : top + inner[0], left : left + inner[1]] = small
    return canvas
