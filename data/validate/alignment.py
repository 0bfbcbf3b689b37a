"""By how many steps the motion follows the executed action, from their cross-correlation.

Delta actions are compared with the change of the state, absolute ones through their own change:
``r(l) = corr(u[t], s[t + l + 1] - s[t + l])`` with ``u = a`` or ``u[t] = a[t] - a[t - 1]``. Row t of an
observation is what step t saw, so a robot that obeys at once has its peak at lag 0. A peak at a negative lag
says that the motion is recorded before the command that caused it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from data.validate.correlation import Correlation, Lag
from data.validate.finding import Finding, Kind, Severity
from data.validate.signals import action_feature, action_names, control_period, per_dimension, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from data.features import Features
    from data.records import Episode
    from data.validate.thresholds import Thresholds

MODES = ("delta", "absolute")
_LAG_S = 0.6
_FEWEST_LAGS, _MOST_LAGS = 5, 30
_SHORTEST = 8
_FEW = 3
"""Fewer episodes cannot tell which one is unlike the others."""
_NOTED = 2
"""Steps of lag, or of difference in lag, that are worth a word."""
_PLAUSIBLE = 3
"""Steps that a robot may lag behind where the length of a step is not known."""


class Alignment:
    """Finds episodes whose actions and observations do not belong to the same moments.

    Args:
        features: Of the observations.
        action_spec: What the action means; without it both modes are tried.
        thresholds: From where on a lag counts as wrong.
    """

    def __init__(
        self, features: Features, action_spec: Mapping[str, Any] | None, thresholds: Thresholds
    ) -> None:
        self._features = features
        self._action_spec = action_spec
        self._thresholds = thresholds
        self._short: dict[str, Correlation] = {}
        self._all: dict[str, Correlation] = {}
        self._told: list[tuple[str, int, Lag]] = []
        self._lags: int | None = None
        self._paired = False
        self._seconds = 0.0

    def check(self, episode: Episode) -> Iterator[Finding]:
        """One episode; those too short to tell are kept for `finish`."""
        state = state_of(episode, self._features)
        usual = control_period(episode, self._action_spec)  # where it is NaN, lags are told in steps only
        if state is None or len(episode) < _SHORTEST:
            return
        if not (np.isfinite(state.flat).all() and np.isfinite(episode.action).all()):
            return
        if self._lags is None:
            lags = _FEWEST_LAGS if np.isnan(usual) else round(_LAG_S / usual)
            self._lags = int(np.clip(lags, _FEWEST_LAGS, _MOST_LAGS))
            self._seconds = usual
        names, declared = action_feature(episode, self._action_spec).names, action_names(self._action_spec)
        nameless = not (declared and state.feature.names)
        same_size = state.flat.shape[1] == len(names)
        self._paired = same_size and (nameless or declared == state.feature.names)
        sums = self._sums(episode.action, state.flat)
        self._add(self._all, sums)
        if len(episode) < self._thresholds.lag_steps:
            self._add(self._short, sums)
        else:
            found = self._best(sums)
            reported = list(self._verdict(found, episode.id, len(episode)))
            yield from reported
            if found and not reported and found.correlation >= self._thresholds.correlation:
                self._told.append((episode.id, len(episode), found))
        if self._paired:
            yield from self._lead(episode, state.flat, declared or state.feature.names or names)

    def finish(self) -> Iterator[Finding]:
        """What the short episodes say together, which lags differ from the others', and one of all."""
        if self._short and next(iter(self._short.values())).steps >= self._thresholds.lag_steps:
            yield from self._verdict(self._best(self._short), "", None)
        yield from self._outliers()
        common = self.lag
        if common is not None and common[0].steps >= _NOTED and self._possible(common[0]):
            text = (
                f"The motion follows its action by {self._size(common[0].steps)} in all episodes together. "
                "An arm can be that slow; if this one is not, a buffer or another clock delays a sensor."
            )
            yield Finding(kind=Kind.MISALIGNED, severity=Severity.NOTE, message=text, feature="action")

    def _outliers(self) -> Iterator[Finding]:
        """Episodes whose lag a robot can have, but not this one, as the others tell."""
        if len(self._told) < _FEW:
            return
        usual = round(float(np.median([lag.steps for _, _, lag in self._told])))
        for id_, rows, lag in self._told:
            clear = lag.correlation - lag.curve.get(usual, 0.0) >= self._thresholds.margin
            if abs(lag.steps - usual) < _NOTED or not clear:
                continue
            text = (
                f"The motion follows its action by {self._size(lag.steps)}, in most episodes by {usual}. "
                f"Pair action t with observation t{lag.steps - usual:+d}, or leave the episode out."
            )
            yield Finding(
                kind=Kind.MISALIGNED,
                severity=Severity.WARNING,
                message=text,
                episode=id_,
                feature="action",
                first_step=0,
                last_step=rows - 1,
            )

    @property
    def lag(self) -> tuple[Lag, float] | None:
        """Lag over all episodes and the time of one step (s); None where it cannot be told."""
        found = self._best(self._all) if self._all else None
        if found is None or found.correlation < self._thresholds.correlation:
            return None
        return found, self._seconds

    def _sums(self, action: NDArray[np.float64], state: NDArray[np.float64]) -> dict[str, Correlation]:
        motion = np.diff(state, axis=0)
        most = self._lags or _FEWEST_LAGS
        lags = min(most, len(motion) - 3)
        delta, absolute = action[1:], np.diff(action, axis=0)
        modes = per_dimension(self._action_spec, "mode")
        if len(modes) == action.shape[1]:
            declared = np.where(np.array(modes) == "delta", delta, absolute)
            return {"declared": Correlation.of(declared, motion[1:], lags).padded(most)}
        both = zip(MODES, (delta, absolute), strict=True)
        return {mode: Correlation.of(command, motion[1:], lags).padded(most) for mode, command in both}

    @staticmethod
    def _add(target: dict[str, Correlation], sums: Mapping[str, Correlation]) -> None:
        for mode, value in sums.items():
            known = target.get(mode)
            if known is None or known.products.shape == value.products.shape:
                target[mode] = value if known is None else known + value

    def _best(self, sums: Mapping[str, Correlation]) -> Lag | None:
        plausible = _PLAUSIBLE
        if not np.isnan(self._seconds):
            plausible = max(1, math.ceil(self._thresholds.lag_s / self._seconds))
        found = [value.lag(paired=self._paired, plausible=plausible) for value in sums.values()]
        return max((lag for lag in found if lag), key=lambda lag: lag.correlation, default=None)

    def _possible(self, lag: Lag) -> bool:
        return lag.correlation - lag.plausible < self._thresholds.margin

    def _size(self, steps: int) -> str:
        seconds = abs(steps) * self._seconds
        return f"{abs(steps)} steps" + ("" if np.isnan(seconds) else f" ({seconds:.2g} s)")

    def _verdict(self, lag: Lag | None, id_: str, rows: int | None) -> Iterator[Finding]:
        t = self._thresholds
        if lag is None or lag.correlation < t.correlation or self._possible(lag):
            return
        size = self._size(lag.steps)
        what = (
            f"The motion comes {size} before the action that causes it"
            if lag.steps < 0
            else f"The motion comes {size} after its action"
        )
        text = (
            f"{what}: their correlation is {lag.correlation:.2f} there and {lag.plausible:.2f} where a robot "
            f"could have it. Pair action t with observation t{lag.steps:+d}; look for a buffer or another "
            "clock in the recorder."
        )
        yield Finding(
            kind=Kind.MISALIGNED,
            severity=Severity.WARNING,
            message=text,
            episode=id_,
            feature="action",
            first_step=None if rows is None else 0,
            last_step=None if rows is None else rows - 1,
        )

    def _lead(self, episode: Episode, state: NDArray[np.float64], names: Sequence[str]) -> Iterator[Finding]:
        modes = per_dimension(self._action_spec, "mode") or ["absolute"] * len(names)
        span = np.ptp(episode.action, axis=0)
        lead = np.median(episode.action - state[1:], axis=0)
        for index in np.flatnonzero(np.abs(lead) > self._thresholds.lead * np.maximum(span, 1e-12)):
            if modes[index] != "absolute":
                continue
            text = (
                f"The command stands {lead[index]:+.4g} off the state it reaches (median), in a "
                f"range of {span[index]:.4g}. Do not use states in place of actions."
            )
            yield Finding(
                kind=Kind.LEAD,
                severity=Severity.NOTE,
                message=text,
                episode=episode.id,
                feature="action",
                dimension=names[index],
                first_step=0,
                last_step=len(episode) - 1,
            )
