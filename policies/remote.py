"""A policy that ``robot-rl serve`` runs elsewhere, on a machine with a GPU, as a `Policy` here."""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch
from torch import Tensor

from data.features import Feature
from policies import wire
from policies.answering import Answer, AnsweringPolicy
from policies.connection import Connection, Timeouts
from policies.errors import PolicyAwayError, PolicyError
from policies.spec_json import from_json

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy.typing import NDArray

    from policies.policy import PolicySpec
    from policies.request import ChunkRequest, Condition

TOKEN_VARIABLE = "ROBOT_RL_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable that holds the token where none is given."""
STALE_S = 0.25
"""An observation that waited longer than this for a new connection is not planned from."""


@dataclass(frozen=True)
class RemoteSettings:
    """Options of `policies.loading.load` for a policy that ``robot-rl serve`` runs.

    Attributes:
        token: of the server; None: what the environment variable ROBOT_RL_TOKEN holds, if anything.
        timeouts: how long the server may take.
        default_features: of observations that only the server's guidance reads, which its policy cannot
            describe.
    """

    token: str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    default_features: Mapping[str, Feature] = field(default_factory=dict)


@dataclass(frozen=True)
class Latency:
    """How long the last chunks took, s.

    Attributes:
        count: of chunks that are counted, 100 at most.
        median: from the request to its chunk.
        worst: likewise.
        server: share of the median that the server computed; the rest is the way and waiting for others.
    """

    count: int
    median: float
    worst: float
    server: float


class RemotePolicy(AnsweringPolicy):
    """A policy behind ``robot-rl serve``, with the noise, guidance and selection that the server adds.

    Its denoising is elsewhere, so hooks go to the server; a corrector goes to the loop here. Where the server
    is lost a call raises `PolicyAwayError`, and the next one connects again.

    Args:
        address: such as ``ws://host:8000``.
        settings: token, timeouts, features.

    Raises:
        PolicyAwayError: the server is not there.
        PolicyError: it refuses, or speaks another protocol.
    """

    def __init__(self, address: str, settings: RemoteSettings | None = None) -> None:
        settings = settings or RemoteSettings()
        token = settings.token or os.environ.get(TOKEN_VARIABLE, "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.address = address
        self._hello: dict[str, Any] = {}
        self._connection = Connection(address, self._greet, headers=headers, timeouts=settings.timeouts)
        self._connection.open()
        try:
            self._spec = self._described(settings.default_features)
        except PolicyError:
            self._connection.close()
            raise
        self._count = 0
        self._begins: list[str] = []
        self._seconds: deque[tuple[float, float]] = deque(maxlen=100)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        self._connection.close()

    @property
    def spec(self) -> PolicySpec:
        """Of the policy at the server; its denoising counts as closed."""
        return self._spec

    @property
    def refiner_version(self) -> str:
        """Version of the refiner that the server adds; empty without one."""
        return str(self._hello["refiner"])

    @property
    def latency(self) -> Latency | None:
        """How long the last chunks took; None before the first."""
        if not self._seconds:
            return None
        whole = [seconds for seconds, _ in self._seconds]
        server = statistics.median(seconds for _, seconds in self._seconds)
        return Latency(len(whole), statistics.median(whole), max(whole), server)

    def hash(self) -> str:
        """Hash of the base at the server, which a refiner here must have been made for."""
        return str(self._hello["base"])

    def begin_episode(self, rows: Sequence[str]) -> None:
        """Have the server's hooks forget these episodes before the next chunk."""
        self._begins += rows

    def answer(
        self,
        request: ChunkRequest,
        noise: Float[Tensor, "B H Z"] | None = None,
        condition: Condition = None,
        *,
        deterministic: bool = True,
        gain: float = 1.0,
    ) -> Answer:
        """Return chunks and how they came about; see `AnsweringPolicy`.

        Raises:
            PolicyAwayError: the server is lost, or no answer came in time.
            PolicyError: the server failed, or its answer is not one.
            ValueError: the server refuses the request; it says why.
        """
        took = self._connection.open()
        if self._count and took > STALE_S:
            because = f"connected again after {took:.1f} s, the observation is too old"
            raise PolicyAwayError(f"{self.address}: {because}; ask with a new one", because)
        self._count += 1
        number, begins = self._count, list(self._begins)
        message = self._message(request, noise, condition, number)
        data = wire.pack(message | {"begins": begins, "deterministic": deterministic, "gain": gain})
        began = time.perf_counter()
        reply = self._connection.exchange(data, lambda came: self._reply(came, number))
        if reply["kind"] == "error":
            problem = ValueError if reply.get("what") == "request" else PolicyError
            raise problem(f"{self.address}: {reply.get('because')}")
        answer = self._answer(reply, request.rows_count)
        self._seconds.append((time.perf_counter() - began, float(reply["timing"]["plan_s"])))
        del self._begins[: len(begins)]
        return answer

    def _greet(self, data: bytes | str) -> None:
        """Take the server's first message; the same policy must be there each time."""
        try:
            hello = wire.unpack(data)
            found = {name: hello[name] for name in ("kind", "protocol", "base", "refiner", "spec", "keys")}
        except (wire.WireError, KeyError) as error:
            raise PolicyError(f"{self.address} is no `robot-rl serve`: {error!r}") from error
        if (found["kind"], found["protocol"]) != ("hello", wire.PROTOCOL):
            raise PolicyError(
                f"{self.address} speaks protocol {found['protocol']!r}; this program speaks {wire.PROTOCOL}: "
                "install the same version of robot-rl on both sides"
            )
        for name in ("base", "refiner", "spec", "keys"):
            if self._hello and found[name] != self._hello[name]:
                raise PolicyError(
                    f"{self.address} serves another policy since it was connected again: its {name} is no "
                    "longer the same; load the policy anew"
                )
        self._hello = found

    def _described(self, features: Mapping[str, Feature]) -> PolicySpec:
        try:
            spec = from_json(self._hello["spec"])
            more = [key for key in self._hello["keys"] if key not in spec.features and key != "task"]
        except (ValueError, TypeError) as error:
            raise PolicyError(f"{self.address} describes no policy: {error}") from error
        if missing := [key for key in more if key not in features]:
            raise PolicyError(
                f"the guidance at {self.address} reads {', '.join(missing)} besides what its policy reads; "
                "say what they are: load_policy(..., default_features=...)"
            )
        supports = replace(spec.supports, velocity=False, gradients=False)
        known = {**spec.features, **{key: features[key] for key in more}}
        # The guidance may read the task's text where the policy does not.
        reads_task = spec.reads_task or "task" in self._hello["keys"]
        return replace(spec, features=known, supports=supports, reads_task=reads_task)

    def _message(
        self, request: ChunkRequest, noise: Tensor | None, condition: Condition, number: int
    ) -> dict[str, Any]:
        missing = [key for key in self._hello["keys"] if key not in request.observation]
        if missing:
            raise ValueError(f"the observation lacks {missing}; policy {self._spec.name!r} reads them")
        observation = {key: request.observation[key] for key in self._hello["keys"]}
        arrays = {
            "previous_chunk": request.previous_chunk,
            "consumed": request.consumed,
            "delay": request.delay,
            "noise": noise,
        }
        return {
            "kind": "chunk",
            "id": number,
            "observation": {key: _plain(value) for key, value in observation.items()},
            **{name: None if value is None else value.numpy(force=True) for name, value in arrays.items()},
            "episodes": list(request.episode_ids),
            "condition": condition if condition is None or isinstance(condition, str) else list(condition),
        }

    def _reply(self, data: bytes | str, number: int) -> dict[str, Any] | None:
        """The message, if it answers request `number`; None for a late answer to an earlier one."""
        try:
            message = wire.unpack(data)
            kind, answers = message["kind"], message["id"]
        except (wire.WireError, KeyError) as error:
            self._broken(repr(error))
        if isinstance(answers, int) and answers < number:
            return None
        if kind == "error":
            return message
        if kind != "chunk" or answers != number:
            self._broken(f"{kind!r} {answers!r} answers request {number}")
        if (message.get("base"), message.get("refiner")) != (self._hello["base"], self._hello["refiner"]):
            self._broken("the chunk is of another policy than the one that was announced")
        return message

    def _answer(self, reply: Mapping[str, Any], rows: int) -> Answer:
        spec = self._spec
        try:
            optional = {
                name: None if reply[name] is None else wire.read_array(reply[name], name)
                for name in ("noise", "candidates", "index")
            }
            chunk = wire.read_array(reply["chunk"], "chunk")
            info = {name: _tensor(wire.read_array(entry, name)) for name, entry in reply["info"].items()}
        except (wire.WireError, KeyError, AttributeError) as error:
            self._broken(repr(error))
        wanted = (rows, spec.horizon, spec.action_size)
        if chunk.shape != wanted or not np.isfinite(chunk).all():
            self._broken(f"the chunk is {chunk.shape}, {wanted} and finite is expected")
        more = {name: None if array is None else _tensor(array) for name, array in optional.items()}
        return Answer(_tensor(chunk), **more, info=info)

    def _broken(self, what: str) -> NoReturn:
        raise PolicyError(f"the answer of {self.address} breaks the protocol: {what}")


def _plain(value: Tensor | Sequence[str]) -> NDArray[Any] | list[str]:
    return value.numpy(force=True) if isinstance(value, Tensor) else list(value)


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.copy())
