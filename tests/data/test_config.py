import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from data.config import from_dict, to_dict


class Colour(enum.StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    sizes: tuple[int, ...] = (1, 2)

    def __post_init__(self):
        if self.rate < 0:
            raise ValueError(f"rate is {self.rate}; it must not be negative.")


@dataclass(frozen=True)
class Outer:
    steps: int
    inner: Inner = field(default_factory=Inner)
    parts: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (1, "a")
    mode: Literal["copy", "lora"] = "copy"
    colour: Colour = Colour.RED
    out: Path | None = None
    table: Mapping[str, float] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    quick: bool = False


FULL = Outer(
    3,
    Inner(2.0, (4,)),
    (Inner(), Inner(1.0)),
    (7, "z"),
    "lora",
    out=Path("a/b"),
    table={"x": 1.5},
    names=["n"],
)


@pytest.mark.parametrize("config", [FULL, Outer(1)])
def test_a_configuration_survives_json(config):
    assert from_dict(Outer, json.loads(json.dumps(to_dict(config)))) == config


def test_whole_numbers_are_taken_for_floats_and_not_the_other_way():
    assert from_dict(Inner, {"rate": 2}).rate == 2.0
    with pytest.raises(TypeError, match=r"Outer.steps is 2.5 .*int is needed"):
        from_dict(Outer, {"steps": 2.5})
    with pytest.raises(TypeError, match=r"Outer.steps is True"):
        from_dict(Outer, {"steps": True})


@pytest.mark.parametrize(
    ("mapping", "error", "match"),
    [
        ({"step": 1}, ValueError, "Outer has no field 'step'; did you mean 'steps'"),
        (
            {"steps": 1, "inner": {"size": ()}},
            ValueError,
            "Outer.inner has no field 'size'; did you mean 'sizes'",
        ),
        ({"steps": 1, "zzz": 1}, ValueError, "it has .*'colour'"),
        ({}, ValueError, "needs a value for 'steps'"),
        ({"steps": 1, "mode": "lorra"}, ValueError, "allowed: 'copy', 'lora'; did you mean 'lora'"),
        ({"steps": 1, "colour": "blue"}, ValueError, r"'blue'; allowed: \['red'\]"),
        ({"steps": 1, "inner": {"rate": -1.0}}, ValueError, "must not be negative"),
        ({"steps": 1, "pair": [1]}, ValueError, "has 1 values; 2"),
        ({"steps": 1, "parts": "ab"}, TypeError, "list of values"),
        ({"steps": 1, "inner": 3}, TypeError, "mapping of names"),
        ({"steps": 1, "parts": [{"rate": "x"}]}, TypeError, r"parts\[0\].rate is 'x'"),
        ({"steps": 1, "out": 5}, TypeError, "Outer.out is 5"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(mapping, error, match):
    with pytest.raises(error, match=match):
        from_dict(Outer, mapping)


def test_objects_have_no_place_in_a_configuration():
    with pytest.raises(TypeError, match="no place"):
        to_dict({"a": object()})
