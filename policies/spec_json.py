"""A policy's fixed facts as JSON, for whoever is told of a policy that runs elsewhere."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from data import features
from hardware.action_spec import ActionSpec
from policies.policy import PolicySpec, Supports

if TYPE_CHECKING:
    from collections.abc import Mapping


def to_json(spec: PolicySpec) -> dict[str, Any]:
    """Describe a specification with JSON types only."""
    plain = {field.name: getattr(spec, field.name) for field in fields(spec)}
    supports = asdict(spec.supports) | {"conditions": list(spec.supports.conditions)}
    return plain | {
        "features": features.to_json(spec.features),
        "action_spec": spec.action_spec.to_json(),
        "supports": supports,
    }


def from_json(mapping: Mapping[str, Any]) -> PolicySpec:
    """Read what `to_json` wrote.

    Raises:
        ValueError: an entry is missing, unknown or not allowed.
    """
    try:
        supports = dict(mapping["supports"])
        conditions = tuple(str(name) for name in supports.pop("conditions", ()))
        return PolicySpec(
            **dict(mapping)
            | {
                "features": features.from_json(mapping["features"]),
                "action_spec": ActionSpec.from_json(mapping["action_spec"]),
                "supports": Supports(**supports, conditions=conditions),
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no specification of a policy: {error!r}") from error
