"""Who moves the robot: one executed action from the policy's proposal, a person's command and the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from data.records import SegmentKind, Source

if TYPE_CHECKING:
    from hardware.action_spec import ActionSpec
    from sim.task import Expert, Task


@dataclass(frozen=True)
class Proposal:
    """What the policy wants to do in one row.

    Attributes:
        action: After correction, (A,), robot units.
        command_id: Number of the command; grows by one per control step.
        hold: Why the robot should hold still, which the action does; empty for a proposal of the policy.
    """

    action: NDArray[np.float64]
    command_id: int
    hold: str = ""


@dataclass(frozen=True)
class Executed:
    """What the robot is told, and why.

    Attributes:
        action: (A,), robot units, within the limits.
        source: Who chose it.
        because: Why it differs from the proposal; empty when it does not.
        command_id: Number of the proposal it answers.
        intended: What a person or expert meant, before limits; None if none spoke.
        segment_kind: What a person's stretch of steps is for.
    """

    action: NDArray[np.float64]
    source: Source
    because: str
    command_id: int
    intended: NDArray[np.float64] | None = None
    segment_kind: SegmentKind = SegmentKind.NONE


class Arbiter(Protocol):
    """Decides in one row what is executed."""

    def begin_episode(self, seed: int) -> None:
        """Learn that the row's environment was reset with `seed`."""
        ...

    def control(self, stamp: float) -> Source:
        """Say who holds control in the step that begins at monotonic time `stamp` (s).

        Asked once per control step, before anything is proposed: when the policy gets control back, it plans
        from what the robot sees then.
        """
        ...

    def resolve(self, proposal: Proposal, stamp: float) -> Executed:
        """Answer a proposal made at monotonic time `stamp` (s).

        Raises:
            ValueError: The proposal is not finite.
        """
        ...


class LimitArbiter:
    """Executes the policy's proposal within the action's limits; nobody else speaks.

    Args:
        spec: Whose limits hold.
    """

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec

    def begin_episode(self, seed: int) -> None:
        """Nothing depends on the episode."""

    def control(self, stamp: float) -> Source:
        """The policy, always."""
        del stamp
        return Source.POLICY

    def resolve(self, proposal: Proposal, stamp: float) -> Executed:
        """Answer a proposal; see `Arbiter.resolve`."""
        del stamp
        bad = np.flatnonzero(~np.isfinite(proposal.action))
        if bad.size:
            raise ValueError(
                f"The policy proposes {proposal.action[bad[0]]} for {self._spec.names[bad[0]]}; nothing is "
                "executed. Its weights or its observation are not finite."
            )
        action = self._spec.clip(proposal.action)
        if proposal.hold:
            return Executed(action, Source.PAUSED, proposal.hold, proposal.command_id)
        because = "" if np.array_equal(action, proposal.action) else "limited to the action's range"
        return Executed(action, Source.POLICY, because, proposal.command_id)


class ExpertArbiter:
    """The task's scripted expert holds control; what it means is executed within the action's limits.

    Args:
        task: Whose expert demonstrates.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._expert: Expert | None = None

    def begin_episode(self, seed: int) -> None:
        """Have an expert made for the episode; its noise follows from the seed."""
        self._expert = self._task.expert(seed)

    def control(self, stamp: float) -> Source:
        """The expert, always."""
        del stamp
        return Source.DEMO

    def resolve(self, proposal: Proposal, stamp: float) -> Executed:
        """Execute what the expert does, whatever the policy proposes; see `Arbiter.resolve`."""
        del stamp
        assert self._expert is not None, "the loop begins each episode"
        intended = np.asarray(self._expert.act(), np.float64)
        action = self._task.action_spec.clip(intended)
        return Executed(action, Source.DEMO, "the expert demonstrates", proposal.command_id, intended)
