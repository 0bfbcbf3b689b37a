"""What a refined policy is made of, as LeRobot's ``config.json`` says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from lerobot.configs import PreTrainedConfig

DEFAULT_SEED = 1000
"""LeRobot's own default of ``--seed``, so that `lerobot-eval` and `robot-rl evaluate` run the same pairs."""


@PreTrainedConfig.register_subclass("robot_rl")
@dataclass
class RobotRlConfig(PreTrainedConfig):  # type: ignore[misc] # LeRobot ships no types
    """A frozen base by reference, and a refiner in the same folder.

    Attributes:
        base: folder of the base, relative to this one or to where the program runs, or its hub id.
        base_revision: branch, tag or commit on the hub.
        base_hash: what the base's hash must be.
        refiner: folder of the refiner inside this one; empty for the bare base.
        seed: of the first episode: noise and exploration follow from it. Give ``--policy.seed`` the value of
            ``--seed`` to draw what `robot-rl evaluate` draws on these seeds.
        gain: share of the refinement that is applied, 0 .. 1.
        chunk_size: actions in a chunk of `predict_action_chunk`.
        n_action_steps: control steps after which the base plans anew.
    """

    base: str = ""
    base_revision: str | None = None
    base_hash: str = ""
    refiner: str = "refiner"
    seed: int = DEFAULT_SEED
    gain: float = 1.0
    chunk_size: int = 1
    n_action_steps: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        if not 0.0 <= self.gain <= 1.0 or self.seed < 0:
            raise ValueError(f"gain is {self.gain} and seed {self.seed}; allowed are 0 .. 1, and 0 or more.")

    @property
    def observation_delta_indices(self) -> list[int] | None:
        """None: the policy keeps the past itself."""
        return None

    @property
    def action_delta_indices(self) -> list[int]:
        """Positions of a chunk's actions."""
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> list[int] | None:
        """None: no rewards are read."""
        return None

    def get_optimizer_preset(self) -> NoReturn:
        """Refuse to train; see `not_trainable`."""
        raise not_trainable()

    def get_scheduler_preset(self) -> None:
        """None: nothing is trained."""

    def validate_features(self) -> None:
        """Nothing to check here: the base checks what it reads at every chunk."""


def not_trainable() -> NotImplementedError:
    """What is raised where LeRobot would train a refined policy."""
    return NotImplementedError(
        "A refined policy of robot-rl is not trained by LeRobot: its base stays frozen. Refine it with "
        "`robot-rl refine` and export it anew."
    )
