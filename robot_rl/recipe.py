"""What one method brings to the online skeleton (`robot_rl.online`).

How other methods fit, without a second trainer:

- Off-policy correctors (ResFiT, EXPO, PLD, policy decorator): as the residual does
  (`robot_rl.correct.residual_recipe`): a corrector as part, a learner with a replay. Prior data (RLPD's half
  and half) is read by the learner's factory, which runs in the learner's process and may open any store.
- The initial noise (DSRL): as `robot_rl.noise.dsrl` does: a noise policy as part, chunks as transitions.
- On-policy (ResiP's PPO): ``overlapped = False`` collects each wave with the weights of the last update; the
  corrector puts log-density and draw into `Correction.info`, which is recorded per step; the learner's `add`
  replaces its rollout, and its `update(count)` makes `count` minibatch steps over it (updates_per_step times
  steps: epochs times steps over minibatch size).
- Critics and policy improvement (QAM, HABC, RECAP): the part is whatever acts (a student, a condition, a
  selector); offline phases are updates of the same learner before the first wave, by its factory.
- One robot: ``rows = 1`` and an environment that is the robot; the learner already has a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from robot_rl.parts import SavedPart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from data.records import Episode
    from robot_rl.learn.process import Factory
    from robot_rl.refiner import Refiner


class ActingPart(SavedPart, Protocol):
    """A part of a refiner whose network is learned: the learner's snapshot is its state."""

    @property
    def network(self) -> nn.Module:
        """What acts."""
        ...


class Recipe[Part: ActingPart](Protocol):
    """What one method brings to the skeleton.

    Attributes:
        part: Class of the part that acts.
        effect: Name of the measure that is 0 in waves of the bare base; see `robot_rl.refine_check.concern`.
        overlapped: Whether a wave is collected while the learner works, with the weights before its round;
            else with those after it.
    """

    part: type[Part]
    effect: str
    overlapped: bool

    def warm_up(self, episodes: Sequence[Episode]) -> Refiner:
        """Return what acts in the next wave of the warm-up, given all its episodes so far."""
        ...

    def build(self, episodes: Sequence[Episode]) -> Part:
        """Return the untrained part, made from the warm-up's episodes.

        Raises:
            ValueError: Learning from here would be in vain; says why and what to do.
        """
        ...

    def refiner(self, part: Part) -> Refiner:
        """Return the refiner that has the part in its place."""
        ...

    def learner(self, part: Part, capacity: int) -> Factory:
        """Return what builds the learner, picklable.

        Args:
            part: Untrained, or as a checkpoint had it.
            capacity: Rows of the replay.
        """
        ...

    def measure(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        """Return what is logged of a wave besides its success."""
        ...
