"""The one supervised training loop: updates, moving average, progress, held-out loss, exact resume.

Base policies, students and the models of guidance are all fitted here; what differs is the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from robot_rl.progress import stage

if TYPE_CHECKING:
    from torch import Tensor, nn

    from robot_rl.runs import RunDirectory
    from robot_rl.train.state import TrainState

Progress = Callable[[int, int], None]
"""``progress(done, total)``, called after every update."""


class FitSettings(Protocol):
    """What a fit is told; configurations carry fields of these names."""

    @property
    def steps(self) -> int:
        """Updates."""
        ...

    @property
    def learning_rate(self) -> float:
        """Of AdamW after the warm-up."""
        ...

    @property
    def warmup(self) -> int:
        """Updates in which the learning rate rises."""
        ...

    @property
    def weight_decay(self) -> float:
        """Of AdamW."""
        ...

    @property
    def gradient_clip(self) -> float:
        """Greatest norm of a gradient."""
        ...

    @property
    def average(self) -> float:
        """Decay of the moving average of the weights; 0: the average is the newest weights."""
        ...

    @property
    def checkpoint_steps(self) -> int:
        """Updates between checkpoints."""
        ...


@dataclass(frozen=True)
class FitConfig:
    """`FitSettings` for configurations that are a fit and little else; each sets its own defaults."""

    steps: int = 4000
    """updates"""
    batch: int = 256
    """examples per update"""
    learning_rate: float = 1e-3
    """of AdamW after the warm-up; falls to 0 along a cosine"""
    warmup: int = 100
    """updates in which the learning rate rises"""
    weight_decay: float = 1e-6
    """of AdamW"""
    gradient_clip: float = 1.0
    """greatest norm of a gradient"""
    average: float = 0.99
    """decay of the moving average of the weights, which is what is used"""
    checkpoint_steps: int = 1000
    """updates between checkpoints"""

    def __post_init__(self) -> None:
        """Check the values."""
        check_fit(self)
        self.check_least("batch", 1)

    def check_least(self, name: str, least: int) -> None:
        """Refuse a number that is too small.

        Raises:
            ValueError: naming it.
        """
        if getattr(self, name) < least:
            raise ValueError(f"{name} is {getattr(self, name)}, allowed is {least} or more")


def check_fit(settings: FitSettings) -> None:
    """Refuse settings that cannot be fitted with.

    Raises:
        ValueError: naming the setting, its value and what is allowed.
    """
    for name in ("steps", "warmup", "checkpoint_steps"):
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} is {getattr(settings, name)}, allowed is 1 or more")
    if not 0 <= settings.average < 1:
        raise ValueError(f"average is {settings.average}, allowed is 0 up to, but not including, 1")
    if not 0 < settings.learning_rate < math.inf:
        raise ValueError(f"learning_rate is {settings.learning_rate}, a positive number is needed")


def optimiser(model: nn.Module, settings: FitSettings) -> torch.optim.AdamW:
    """Return the optimiser of a fit; `fit` sets its learning rate anew at every update.

    Args:
        model: whose parameters are trained.
        settings: of the fit.
    """
    return torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )


def learning_rate(settings: FitSettings, step: int) -> float:
    """Return the learning rate of an update: linear warm-up, then a cosine to 0.

    Args:
        settings: of the fit.
        step: updates done before.
    """
    rise = min(1.0, (step + 1) / settings.warmup)
    return settings.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * step / settings.steps))


def fit[Model: nn.Module](
    settings: FitSettings,
    run: RunDirectory,
    state: TrainState[Model],
    loss: Callable[[], Tensor],
    *,
    name: str,
    held_out: Callable[[], float] | None = None,
    progress: Progress | None = None,
) -> None:
    """Train `state.model` until `settings.steps` updates are done, going on from the run's last checkpoint.

    Interrupted and resumed it ends with the same weights to the bit, provided that `loss` draws whatever is
    random from `state.generator`.

    Args:
        settings: see `FitSettings`.
        run: logs and checkpoints go there; a checkpoint it was resumed from is loaded first.
        state: model, its average, optimiser and random state; changed in place.
        loss: draws a batch and returns the scalar loss of `state.model` on it.
        name: of the stage, for the progress bar.
        held_out: loss of `state.average` on data that `loss` never draws; logged with every row.
        progress: called after every update, besides the progress bar.

    Raises:
        ValueError: if the loss is not finite.
    """
    if run.resumed is not None:
        state.load(run.resumed.path)
    every = max(1, min(100, settings.steps // 20))
    losses: list[Tensor] = []
    with stage(name, settings.steps) as reporter:
        reporter.update(state.step)
        while state.step < settings.steps:
            losses.append(_update(settings, state, loss))
            if state.step % every == 0 or state.step == settings.steps:
                mean = _log(settings, run, state, losses, held_out)
                losses = []
                reporter.update(state.step, f"loss {mean:.3g}")
            if state.step % settings.checkpoint_steps == 0 or state.step == settings.steps:
                with run.checkpoint(state.step) as folder:
                    state.save(folder)
            if progress is not None:
                progress(state.step, settings.steps)


def _log[Model: nn.Module](
    settings: FitSettings,
    run: RunDirectory,
    state: TrainState[Model],
    losses: list[Tensor],
    held_out: Callable[[], float] | None,
) -> float:
    mean = float(torch.stack(losses).mean())
    if not math.isfinite(mean):
        raise ValueError(f"the loss is {mean} after {state.step} updates: lower the learning rate")
    row = {"loss": mean, "learning_rate": learning_rate(settings, state.step - 1)}
    run.log(state.step, row if held_out is None else row | {"held_out_loss": held_out()})
    return mean


def _update[Model: nn.Module](
    settings: FitSettings, state: TrainState[Model], loss: Callable[[], Tensor]
) -> Tensor:
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(settings, state.step)
    value = loss()
    state.optimizer.zero_grad(set_to_none=True)
    value.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    torch.nn.utils.clip_grad_norm_(state.model.parameters(), settings.gradient_clip)
    state.optimizer.step()
    state.step += 1
    state.update_average(settings.average)
    return value.detach()
