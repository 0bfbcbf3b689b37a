import json

import numpy as np
import pytest

from data.events import Event, EventKind


def test_an_event_survives_json():
    made = Event(
        time=1.25, wall_time=1.7e9, kind="pause", because="hand", data={"force": np.float32(2), "at": (1, 2)}
    )
    assert made.kind is EventKind.PAUSE
    assert made.data == {"force": 2.0, "at": [1, 2]}
    assert Event.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"kind": "nap"}, "nap"),
        ({"time": float("nan")}, "time is nan"),
        ({"wall_time": float("inf")}, "wall_time is inf"),
        ({"data": {"f": print}}, "no place"),
    ],
)
def test_what_is_no_event_is_refused(facts, match):
    with pytest.raises((ValueError, TypeError), match=match):
        Event(**({"time": 1.0, "wall_time": 2.0, "kind": "note"} | facts))


def test_unknown_fields_are_refused_when_read():
    with pytest.raises(ValueError, match="No event"):
        Event.from_json({"time": 1.0, "colour": "red"})
