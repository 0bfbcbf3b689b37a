"""The critics that a refinement trained, to show what they think of an episode.

They lie in the run's checkpoints beside all else that learning needs. What they read is built from an episode
by the code that refinement uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from policies.checkpoint import read_tensors
from robot_rl.correct.inputs import base_actions
from robot_rl.correct.residual import ResidualCorrector
from robot_rl.critics.ensemble import CriticEnsemble
from robot_rl.learn.state_tensors import below
from robot_rl.runs import RunDirectory, check_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from data.records import Episode
    from robot_rl.correct.residual import ResidualNetwork


class ResidualCritic:
    """Values of executed and base actions by the ensemble of a `ResidualLearner`.

    Args:
        network: The residual network it was trained beside; it knows the inputs and their scales.
        critic: The ensemble.
    """

    def __init__(self, network: ResidualNetwork, critic: CriticEnsemble) -> None:
        self.network, self.critic = network, critic

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the critics of a refinement's last checkpoint.

        Args:
            folder: The run directory.

        Raises:
            ValueError: It has no checkpoint, or that is damaged.
            OSError: A file cannot be read.
        """
        run = RunDirectory.open(folder)
        checkpoints = run.checkpoints()
        if not checkpoints:
            raise ValueError(
                f"{folder} has no checkpoint, and with it no critic; one is written every checkpoint_rounds "
                "rounds and at the end: let the run go on with --resume, or refine anew."
            )
        last = checkpoints[-1]
        check_files(last)
        try:
            tensors = read_tensors(last.path / "actor.safetensors")
            network = ResidualCorrector.from_payload(last.manifest["network"], tensors).network
            learned = below(read_tensors(last.path / "learner.safetensors"), "critic.")
            return cls(network, _ensemble(network, learned))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"The checkpoint {last.path} does not hold the critics of a refinement ({error})."
            ) from error

    @torch.no_grad()
    def value_curves(self, episode: Episode) -> Mapping[str, NDArray[np.float64]]:
        """Values of each executed action and of the base's in its place; see `ValueCurves.value_curves`.

        Returns:
            For ``executed`` and ``base``: ``min`` and ``mean`` over the ensemble and each ``critic<i>``, (T,)
            each. NaN at steps whose inputs are not finite.

        Raises:
            ValueError: The episode lacks a sensor or a base action, or has one in another size.
        """
        x = self._inputs(episode)
        base = base_actions(episode, 1, bootstrap=False)[:-1]
        curves: dict[str, NDArray[np.float64]] = {}
        for name, action in (("executed", episode.action.astype(np.float32)), ("base", base)):
            values = self._values(x, action)
            curves |= {f"{name}/min": values.min(0), f"{name}/mean": values.mean(0)}
            curves |= {f"{name}/critic{k}": each for k, each in enumerate(values)}
        return curves

    def _inputs(self, episode: Episode) -> NDArray[np.float32]:
        """Input vectors of the steps, (T, D), in their own units."""
        wanted = len(self.network.scale)
        if episode.action.shape[1] != wanted:
            raise ValueError(
                f"Episode {episode.id} has actions of {episode.action.shape[1]} numbers, the critic reads "
                f"{wanted}; show an episode of the task that was refined."
            )
        x = self.network.config.inputs.recorded(episode)[:-1]
        if x.shape[1] != len(self.network.mean):
            sizes = {key: int(rows[0].size) for key, rows in episode.observations.items()}
            raise ValueError(
                f"Episode {episode.id} gives {x.shape[1]} inputs, the critic reads {len(self.network.mean)}; "
                f"the sizes of its observations are {sizes}. Show an episode of the task that was refined."
            )
        return x

    def _values(self, x: NDArray[np.float32], action: NDArray[np.float32]) -> NDArray[np.float64]:
        """Values of normalised inputs and actions, (K, T)."""
        unit = torch.from_numpy(action) / self.network.action_unit
        found = self.critic(self.network.normalise(torch.from_numpy(x)), unit).double().numpy()
        # Limits on normalised inputs would turn infinity into an ordinary value.
        found[:, ~(np.isfinite(x).all(1) & np.isfinite(action).all(1))] = np.nan
        return np.asarray(found)


def _ensemble(network: ResidualNetwork, learned: Mapping[str, Tensor]) -> CriticEnsemble:
    """An ensemble of saved tensors, whose sizes they tell."""
    count, width, _ = learned["second"].shape
    made = CriticEnsemble(len(network.mean), len(network.scale), count, width)
    state: dict[str, Any] = dict(learned)
    made.load_state_dict(state)
    return made.requires_grad_(False).eval()
