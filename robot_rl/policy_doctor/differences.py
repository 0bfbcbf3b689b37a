"""How a policy differs from a robot or recordings: one finding per difference, with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.features import differences
from policies.checkpoint import action_differences
from robot_rl.doctor import Finding, Status
from robot_rl.policy_doctor.scales import scales_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from data.features import Feature
    from policies.policy import Policy, PolicySpec
    from robot_rl.policy_doctor.sides import Side

_FAR = 5.0
"""Spreads of the training data beyond which a value counts as never seen."""
_UNITS = {180.0 / np.pi: "degrees, not radians", 1000.0: "thousandths (mm), not metres", 100.0: "percent"}
_REMEDIES = {
    "shape": "resize or cut the observation to the policy's shape, or train on this one",
    "dtype": "convert it; pictures are uint8 (height, width, channels)",
    "unit": "convert it to the policy's unit, or say the true unit in robot_rl.json",
    "names": "reorder it: the policy means other elements",
    "size": "use the robot that the policy was trained for",
    "modes": "convert between absolute and delta actions (data.conventions)",
    "units": "convert the actions, or say the true unit in robot_rl.json",
    "rate": "run at the policy's rate, or say the true one with rate_hz in robot_rl.json",
}


def renames(spec: PolicySpec, side: Side) -> dict[str, str]:
    """Key of the policy -> robot key, for keys that only one other of the same form can stand for."""
    missing = [key for key in spec.features if key not in side.features]
    free = [key for key in side.features if key not in spec.features]
    found: dict[str, str] = {}
    for key in missing:
        alike = [other for other in free if _form(side.features[other]) == _form(spec.features[key])]
        rivals = [other for other in missing if _form(spec.features[other]) == _form(spec.features[key])]
        if len(alike) == 1 and len(rivals) == 1:
            found[key] = alike[0]
    return found


def compare(policy: Policy, side: Side, keys: Mapping[str, str]) -> Iterator[Finding]:
    """Say how observations and actions differ.

    Args:
        policy: loaded with `keys`.
        side: what it is compared with.
        keys: proposed by `renames`.
    """
    spec = policy.spec
    for theirs, ours in keys.items():
        yield Finding(
            ours, Status.DIFFERS, f"{side.name} has it in place of the policy's {theirs!r}", _RENAME
        )
    lines = differences(spec.features, side.features, expected_by="the policy", found_in=side.name)
    for key in spec.features:
        own = [line for line in lines if line.startswith(repr(key))]
        remedy = "; ".join(dict.fromkeys(_remedy(line) for line in own))
        detail = " ".join(own) or f"{_said(spec.features[key])}, as in {side.name}"
        yield Finding(key, Status.DIFFERS if own else Status.OK, detail, remedy)
    if side.action_spec is None:
        yield Finding("action", Status.OPTIONAL, f"{side.name} does not say what its actions are")
        return
    wrong = action_differences(spec.action_spec, side.action_spec)
    for line in wrong:
        yield Finding("action", Status.DIFFERS, f"{line} ({side.name})", _remedy(line))
    if not wrong:
        yield Finding("action", Status.OK, f"{spec.action_size} dimensions, as in {side.name}")


def compare_values(policy: Policy, side: Side) -> Iterator[Finding]:
    """Say which recorded numbers lie far from what the policy was trained on.

    Args:
        policy: any; one whose statistics are unknown gives no finding.
        side: with episodes.
    """
    for key, (centre, spread) in scales_of(policy).items():
        values = _recorded(side, key)
        if values is None or values.shape[1] != len(centre):
            continue
        far = np.quantile(np.abs(values - centre) / np.maximum(spread, 1e-9), 0.99, axis=0) > _FAR
        if not far.any():
            yield Finding(f"{key} values", Status.OK, "within what the policy was trained on")
            continue
        first = int(np.flatnonzero(far)[0])
        low, high = values[:, first].min(), values[:, first].max()
        yield Finding(
            f"{key} values",
            Status.DIFFERS,
            f"{int(far.sum())} of {len(far)} dimensions lie far outside; [{first}] is {low:.3g} to "
            f"{high:.3g} in {side.name}, the policy knows {centre[first]:.3g} +- {spread[first]:.3g}",
            _unit_hint(values[:, far], centre[far], spread[far]),
        )


def compare_mode(policy: Policy, side: Side) -> Finding | None:
    """Say whether recorded actions look absolute or delta, where a state of the same width tells."""
    action, state = _recorded(side, "action"), _recorded(side, "observation.state")
    if action is None or state is None or action.shape != state.shape:
        return None
    moves = np.linalg.norm(state.std(axis=0))
    if moves < 1e-9:
        return None
    looks = "absolute" if np.linalg.norm((action - state).std(axis=0)) < 0.5 * moves else "delta"
    said = {group.mode for group in policy.spec.action_spec.groups}
    relative = bool(getattr(getattr(policy, "processors", None), "is_relative", False))
    detail = f"recorded actions look {looks}; the policy's are {' and '.join(sorted(said))}"
    if relative:
        detail += ", and it subtracts the state itself"
    if looks in said:
        return Finding("action mode", Status.OK, detail)
    return Finding("action mode", Status.DIFFERS, detail, _REMEDIES["modes"])


_RENAME = "give --write-mapping, which writes the renaming to robot_rl.json"


def _form(feature: Feature) -> tuple[tuple[int, ...], str]:
    return feature.shape, feature.dtype


def _said(feature: Feature) -> str:
    return f"{feature.dtype} {feature.shape} {feature.unit}".rstrip()


def _remedy(line: str) -> str:
    if "missing" in line:
        return "rename a key (robot_rl.json, keys), add the sensor, or use another policy"
    words = line.replace(":", " ").split()
    return next((remedy for what, remedy in _REMEDIES.items() if what in words), "")


def _recorded(side: Side, key: str) -> NDArray[Any] | None:
    """Recorded values (N, D) of a key, "action" among them; None where there are none or it is a picture."""
    if key == "action":
        return np.concatenate([episode.action for episode in side.episodes])
    rows = [np.asarray(e.observations[key])[:-1] for e in side.episodes if key in e.observations]
    if not rows or rows[0].dtype == np.uint8:
        return None
    values: NDArray[Any] = np.concatenate([row.reshape(len(row), -1) for row in rows]).astype(np.float64)
    return values


def _unit_hint(values: NDArray[Any], centre: NDArray[Any], spread: NDArray[Any]) -> str:
    """A change of units that would explain the difference."""
    ratio = float(np.median(np.abs(values).max(axis=0) / (np.abs(centre) + spread + 1e-12)))
    for factor, words in _UNITS.items():
        for scale, said in (
            (factor, f"perhaps it is in {words}"),
            (1 / factor, f"perhaps the policy wants {words}"),
        ):
            if 0.6 < ratio / scale < 1.7:
                return f"{said}: convert it"
    return "check sensor, unit and calibration; a policy is blind outside its training data"
