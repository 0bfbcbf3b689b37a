"""What answers a client's message: the policy, its refiner, and what is remembered of each client."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from policies import wire
from policies.noise import draw_noise
from policies.policy import require_chunk_policy
from policies.spec_json import to_json
from robot_rl.planning import keys_read, plan_request
from robot_rl.provenance import versions
from robot_rl.serve.requests import RequestReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from policies.policy import Policy
    from robot_rl.planning import Planned
    from robot_rl.refiner import Refiner
    from robot_rl.serve.requests import Asked

logger = logging.getLogger(__name__)

QUICK_S = 0.002
"""What takes less is done in the event loop: handing it to a thread and back would cost as much."""
MOST_EPISODES = 1_024
"""Episodes of one client that hooks may remember; the ones that were not asked for longest are forgotten."""


@dataclass
class Client:
    """One connection.

    Attributes:
        number: tells it from others in the log and in the ids that hooks see.
        gone: whether it has left, so that nothing is computed for it any more.
        chunks: requests answered.
        refused: requests that were none, or failed.
        episodes: ids it named, with its prefix, the latest last.
        generator: draws noise where the client sends none.
    """

    number: int
    gone: bool = False
    chunks: int = 0
    refused: int = 0
    episodes: OrderedDict[str, None] = field(default_factory=OrderedDict)
    generator: np.random.Generator = field(default_factory=np.random.default_rng)

    @property
    def prefix(self) -> str:
        """Of its episodes' ids, which tells them from those of other clients."""
        return f"client{self.number}/"


class Engine:
    """Answers messages, one at a time.

    Args:
        policy: the frozen base.
        refiner: what is added to it; nothing that corrects actions.
        most_rows: in one request.
        most_bytes: of one message.

    Raises:
        ValueError: the refiner was made for another base, corrects, or chooses noise that is not taken.
        PolicyError: it guides a policy whose denoising is closed.
    """

    def __init__(self, policy: Policy, refiner: Refiner, *, most_rows: int, most_bytes: int) -> None:
        self._base = policy.hash()
        refiner.check_base(self._base)
        self.policy = policy if refiner.student is None else refiner.student.in_place_of(policy)
        self.refiner, self._spec = refiner, self.policy.spec
        self._most_rows, self._most_bytes = most_rows, most_bytes
        if refiner.hooks:
            require_chunk_policy(self.policy, "guidance by hooks")
        if (refiner.noise or refiner.select) and not self._spec.supports.noise:
            raise ValueError(f"the refiner chooses noise, but policy {self._spec.name!r} takes none")
        self._keys = keys_read(self._spec, refiner)
        self._reader = RequestReader(self._spec, self._keys, most_rows)
        self._seconds: deque[float] = deque(maxlen=8)
        within = (self.policy.refiner_version, refiner.version)
        self._versions = {"base": self._base, "refiner": "+".join(version for version in within if version)}

    @property
    def title(self) -> str:
        """What is served, for people: the policy, the hash of its base, and the refiner's version."""
        refiner = self._versions["refiner"]
        added = f", refiner {refiner[:12]}" if refiner else ""
        return f"serving {self._spec.name} (base {self._base[:12]}{added})"

    @property
    def quick(self) -> bool:
        """Whether each of the last eight messages was answered within `QUICK_S`."""
        return len(self._seconds) == 8 and max(self._seconds) < QUICK_S

    def hello(self) -> bytes:
        """Return the first message to each client: what is served, and under which limits."""
        return wire.pack(
            {
                "kind": "hello",
                "protocol": wire.PROTOCOL,
                "server": f"robot-rl {versions()['robot-rl']}",
                "spec": to_json(self._spec),
                "keys": self._keys,
                "most_rows": self._most_rows,
                "most_bytes": self._most_bytes,
                **self._versions,
            }
        )

    def answer(self, client: Client, data: bytes | str, arrived: float) -> bytes | None:
        """Return the answer to a message; None if its client has left.

        Args:
            client: who sent it.
            data: the message.
            arrived: when, in seconds of time.perf_counter.
        """
        if client.gone:
            return None
        began = time.perf_counter()
        reply = self._answer(client, data, arrived, began)
        self._seconds.append(time.perf_counter() - began)
        return reply

    def _answer(self, client: Client, data: bytes | str, arrived: float, began: float) -> bytes:
        number: object = None
        try:
            message = wire.unpack(data, self._most_bytes)
            number = _number(message)
            planned = self._plan(client, self._reader.read(message, client.prefix))
            timing = {"queue_s": began - arrived, "plan_s": time.perf_counter() - began}
            reply = wire.pack(
                {"kind": "chunk", "id": number, **_arrays(planned), **self._versions, "timing": timing}
            )
        except wire.WireError as error:
            return self._refuse(client, number, "request", str(error))
        except Exception as error:  # whatever a policy raises, the other clients go on
            logger.exception("client %d: the policy failed", client.number)
            return self._refuse(client, number, "policy", f"{type(error).__name__}: {error}")
        client.chunks += 1
        return reply

    def forget(self, client: Client) -> None:
        """Have hooks forget a client that has left."""
        self._begin(tuple(client.episodes))

    def _plan(self, client: Client, asked: Asked) -> Planned:
        request = asked.request
        unknown = [name for name in dict.fromkeys(request.episode_ids) if name not in client.episodes]
        self._begin((*asked.begins, *(name for name in unknown if name not in asked.begins)))
        for name in request.episode_ids:
            client.episodes[name] = None
            client.episodes.move_to_end(name)
        while len(client.episodes) > MOST_EPISODES:
            self._begin((client.episodes.popitem(last=False)[0],))
        noise = asked.noise
        if noise is None and self._spec.supports.noise:
            noise = draw_noise(self._spec, [client.generator] * request.rows_count)
        generators = _generators(noise) if self.refiner.select is not None and noise is not None else []
        return plan_request(
            self.policy,
            self.refiner,
            request,
            noise,
            generators,
            condition=asked.condition,
            deterministic=asked.deterministic,
            gain=asked.gain,
        )

    def _begin(self, episodes: Sequence[str]) -> None:
        if not episodes:
            return
        self.policy.begin_episode(episodes)
        for hook in self.refiner.hooks:
            hook.begin_episode(episodes)

    def _refuse(self, client: Client, number: object, what: str, because: str) -> bytes:
        client.refused += 1
        if what == "request":
            logger.warning("client %d: refused: %s", client.number, because)
        return wire.pack({"kind": "error", "id": number, "what": what, "because": because[:10_000]})


def _number(message: Mapping[str, Any]) -> int:
    number = message.get("id")
    if message.get("kind") != "chunk" or type(number) is not int or not 0 <= number < 2**63:
        raise wire.WireError(
            f"kind is {str(message.get('kind'))[:100]!r} and id {str(number)[:100]!r}; 'chunk' and a number "
            "are expected"
        )
    return number


def _generators(noise: torch.Tensor) -> list[np.random.Generator]:
    """A generator per row that follows from its noise, so that the same noise gives the same candidates."""
    rows = [row.contiguous().numpy(force=True).tobytes() for row in noise]
    return [np.random.default_rng(list(hashlib.sha256(row).digest())) for row in rows]


def _arrays(planned: Planned) -> dict[str, Any]:
    return {
        "chunk": planned.chunk,
        "noise": planned.noise,
        "candidates": planned.candidates,
        "index": planned.index,
        "info": dict(planned.info),
    }
