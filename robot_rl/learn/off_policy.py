"""What off-policy learners share: replay, optimisers, a tuned temperature, chance, and their exact state."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import torch

from robot_rl.learn.learner import Learner
from robot_rl.learn.state_tensors import (
    below,
    load_optimiser,
    optimiser_tensors,
    pack_generator,
    unpack_generator,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from data.replay import ReplayBuffer


class OffPolicyLearner(Learner):
    """A learner with a replay and a temperature, whose state is its networks, optimisers and chance.

    A subclass makes its networks, calls `_own`, and implements `add`, `snapshot` and `_update`.

    Args:
        replay: What `add` fills.
        seed: Of every draw.
        learning_rate: Of all optimisers (Adam).
        temperature: Weight of the entropy at the start.
        device: Where the networks live.

    Attributes:
        _rng: For draws from the replay.
        _generator: For draws on the device.
        _updates: Updates so far, the present one included.
    """

    def __init__(
        self, replay: ReplayBuffer, *, seed: int, learning_rate: float, temperature: float, device: str
    ) -> None:
        self._replay, self._learning_rate = replay, learning_rate
        self._rng = np.random.default_rng(seed)
        self._generator = torch.Generator(device).manual_seed(seed)
        self._log_temperature = torch.tensor(np.log(temperature), dtype=torch.float32, device=device)
        self._log_temperature.requires_grad_(True)
        self._networks: dict[str, nn.Module] = {}
        self._optimisers: dict[str, torch.optim.Optimizer] = {}
        self._updates = 0

    def _own(self, networks: Mapping[str, nn.Module], learned: tuple[str, ...]) -> None:
        """Take networks by the names that their tensors have in the state.

        Args:
            networks: All, averages and targets too.
            learned: Those that an optimiser moves; the temperature is one more.
        """
        self._networks = dict(networks)
        moved: dict[str, list[Tensor]] = {name: list(networks[name].parameters()) for name in learned}
        moved["temperature"] = [self._log_temperature]
        self._optimisers = {
            name: torch.optim.Adam(parameters, self._learning_rate, fused=True)
            for name, parameters in moved.items()
        }

    def __len__(self) -> int:
        """Transitions in the replay."""
        return len(self._replay)

    @abstractmethod
    def _update(self) -> dict[str, Tensor]:
        """Do one update; diagnostics by name."""

    def update(self, count: int) -> dict[str, float]:
        """Do `count` updates; mean diagnostics."""
        total: dict[str, Tensor] = {}
        for _ in range(count):
            self._updates += 1
            for key, value in self._update().items():
                total[key] = total.get(key, torch.zeros(())) + value.detach()
        return {key: float(value) / count for key, value in total.items()}

    @property
    def _temperature(self) -> Tensor:
        """Weight of the entropy."""
        return self._log_temperature.exp()

    def _tune_temperature(self, gap: Tensor) -> None:
        """Move the temperature (SAC eq. 18, by its logarithm).

        Args:
            gap: Target entropy less entropy; detached.
        """
        self._step("temperature", -self._log_temperature * gap)

    def _step(self, name: str, loss: Tensor) -> None:
        optimiser = self._optimisers[name]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        optimiser.step()

    def state(self) -> dict[str, Tensor]:
        """Networks, optimisers, random generators and the count of updates, by name."""
        state = {"log_temperature": self._log_temperature.detach().clone()}
        for name, module in self._networks.items():
            state |= {f"{name}.{key}": value.detach().clone() for key, value in module.state_dict().items()}
        for name, optimiser in self._optimisers.items():
            state |= optimiser_tensors(optimiser, f"optimiser.{name}.")
        state["generator"] = self._generator.get_state()
        state["numpy_generator"] = pack_generator(self._rng)
        state["updates"] = torch.tensor(self._updates)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a saved state; see `Learner.load_state`."""
        own = self.state()
        missing = {key for key in own if not key.startswith("optimiser.")} - state.keys()
        if missing:
            raise ValueError(
                f"The learner's state lacks {sorted(missing)[:5]}; it belongs to another configuration."
            )
        for name, module in self._networks.items():
            module.load_state_dict(below(state, f"{name}."))
        for name, optimiser in self._optimisers.items():
            load_optimiser(optimiser, state, f"optimiser.{name}.")
        with torch.no_grad():
            self._log_temperature.copy_(state["log_temperature"])
        self._generator.set_state(state["generator"])
        unpack_generator(self._rng, state["numpy_generator"])
        self._updates = int(state["updates"])
