"""One test per cell of the boundary table, against expectations written down by hand from the papers."""

import dataclasses

import numpy as np
import pytest

from data.labels import TABLE, Cell, Region, Rule, find_rule, label

from .timelines import timeline

WITH_TAKEOVER = timeline("ppppppphhhhpppppp")
PLACES = {"P0": slice(0, 5), "P1": slice(5, 7), "H": slice(7, 11), "P2": slice(11, 17)}
DEMONSTRATION = timeline("dddddd")
ALONE = timeline("pppppp")
NOTHING = {
    "bc_weight": 0.0,
    "critic": False,
    "online": False,
    "prior": False,
    "viability": np.nan,
    "progress": False,
    "indicator": -1,
    "preference": -1,
    "keep": False,
}


def expect(**columns):
    return NOTHING | {"keep": True} | columns


DROPPED = NOTHING
IMITATED = expect(bc_weight=1, online=True)
DEMO = expect(bc_weight=1, prior=True)
REPLAY = expect(critic=True, online=True)
# The gate is 0.5, the advantage 1 or 3 (over or under the threshold of 2) and the classes alternate.
HABC = expect(bc_weight=0.5, progress=True, online=True)
HABC_LABELLED = expect(bc_weight=0.5, progress=True, online=True, viability=1)
EXPECTED = {
    ("hg-dagger", "P0"): DROPPED,
    ("hg-dagger", "P1"): DROPPED,
    ("hg-dagger", "H"): IMITATED,
    ("hg-dagger", "P2"): DROPPED,
    ("hg-dagger", "demos"): DEMO,
    ("hg-dagger", "autonomous"): DROPPED,
    ("hil-serl", "P0"): REPLAY,
    ("hil-serl", "P1"): REPLAY,
    ("hil-serl", "H"): expect(critic=True, online=True, prior=True),
    ("hil-serl", "P2"): REPLAY,
    ("hil-serl", "demos"): expect(critic=True, prior=True),
    ("hil-serl", "autonomous"): REPLAY,
    ("lwd", "P0"): REPLAY,
    ("lwd", "P1"): REPLAY,
    ("lwd", "H"): REPLAY,
    ("lwd", "P2"): REPLAY,
    ("lwd", "demos"): expect(critic=True, prior=True),
    ("lwd", "autonomous"): REPLAY,
    ("habc", "P0"): HABC,
    ("habc", "P1"): HABC,
    ("habc", "H"): expect(bc_weight=1, progress=True, online=True),
    ("habc", "P2"): HABC_LABELLED,
    ("habc", "demos"): expect(bc_weight=1, progress=True, prior=True),
    ("habc", "autonomous"): HABC_LABELLED,
    ("recap", "P0"): expect(bc_weight=1, critic=True, online=True, indicator="by advantage"),
    ("recap", "P1"): expect(bc_weight=1, critic=True, online=True, indicator="by advantage"),
    ("recap", "H"): expect(bc_weight=1, critic=True, online=True, indicator=1),
    ("recap", "P2"): expect(bc_weight=1, critic=True, online=True, indicator="by advantage"),
    ("recap", "demos"): expect(bc_weight=1, critic=True, prior=True, indicator=1),
    ("recap", "autonomous"): expect(bc_weight=1, critic=True, online=True, indicator="by advantage"),
    ("sop", "P0"): DROPPED,
    ("sop", "P1"): DROPPED,
    ("sop", "H"): IMITATED,
    ("sop", "P2"): DROPPED,
    ("sop", "demos"): DEMO,
    ("sop", "autonomous"): DROPPED,
    ("help", "P0"): "by class",
    ("help", "P1"): "by class",
    ("help", "H"): IMITATED,
    ("help", "P2"): "by class",
    ("help", "demos"): DEMO,
    ("help", "autonomous"): "by class",
    ("rac", "P0"): DROPPED,
    ("rac", "P1"): DROPPED,
    ("rac", "H"): IMITATED,
    ("rac", "P2"): DROPPED,
    ("rac", "demos"): DEMO,
    ("rac", "autonomous"): IMITATED,
    ("apo", "P0"): expect(preference=1, online=True),
    ("apo", "P1"): expect(preference=0, online=True),
    ("apo", "H"): expect(preference=2, online=True),
    ("apo", "P2"): expect(preference=1, online=True),
    ("apo", "demos"): expect(preference=1, prior=True),
    ("apo", "autonomous"): expect(preference=1, online=True),
    ("conrft", "P0"): expect(bc_weight=1, critic=True, online=True),
    ("conrft", "P1"): expect(bc_weight=1, critic=True, online=True),
    ("conrft", "H"): expect(bc_weight=1, critic=True, online=True, prior=True),
    ("conrft", "P2"): expect(bc_weight=1, critic=True, online=True),
    ("conrft", "demos"): expect(bc_weight=1, critic=True, prior=True),
    ("conrft", "autonomous"): expect(bc_weight=1, critic=True, online=True),
    ("thrifty-dagger", "P0"): REPLAY,
    ("thrifty-dagger", "P1"): REPLAY,
    ("thrifty-dagger", "H"): expect(bc_weight=1, critic=True, online=True),
    ("thrifty-dagger", "P2"): REPLAY,
    ("thrifty-dagger", "demos"): expect(bc_weight=1, critic=True, prior=True),
    ("thrifty-dagger", "autonomous"): REPLAY,
}


def labelled(episode, rule):
    even = np.arange(len(episode)) % 2 == 0
    return label(
        episode,
        rule,
        window=2,
        suffix=1,
        advantage=np.where(even, 3.0, 1.0),
        threshold=2.0,
        gate=np.full(len(episode), 0.5),
        classes=np.where(even, np.where(np.arange(len(episode)) % 4 == 0, "progress", "recovery"), "idle"),
    )


@pytest.mark.parametrize(("rule", "place"), EXPECTED)
def test_a_cell_gives_the_labels_written_down_for_it(rule, place):
    episode = {"demos": DEMONSTRATION, "autonomous": ALONE}.get(place, WITH_TAKEOVER)
    rows = PLACES.get(place, slice(None))
    found = labelled(episode, rule)
    even = (np.arange(len(episode)) % 2 == 0)[rows]
    want = EXPECTED[rule, place]
    if want == "by class":
        want = expect(bc_weight=even, online=even, keep=even)
    assert set(found.region[rows]) == {place}
    for name, value in want.items():
        wanted = even if isinstance(value, str) else np.broadcast_to(value, even.shape)
        np.testing.assert_array_equal(getattr(found, name)[rows], wanted, name)


def test_every_cell_of_the_table_has_an_expectation():
    assert set(EXPECTED) == {(rule.name, str(place)) for rule in TABLE.values() for place in rule.cells}
    assert len(TABLE) == 11


def test_a_failure_is_no_positive_label_and_weighs_nothing_where_the_method_says_so():
    failed = timeline("pppppphhhhpppp", "failure")
    habc = label(failed, "habc", window=2, suffix=1, gate=np.ones(14))
    np.testing.assert_array_equal(habc.bc_weight, [0] * 6 + [1] * 4 + [0] * 4)
    np.testing.assert_array_equal(habc.viability, [np.nan] * 10 + [0] * 4)
    assert not habc.progress.any()
    assert not label(timeline("ppp", "failure"), "rac").bc_weight.any()


def test_a_rule_of_your_own_takes_the_place_of_a_name():
    cells = dict.fromkeys(set(Region) - {Region.PAUSED}, Cell(preference=1))
    own = Rule(name="own", title="Own", source="here", cells=cells, window=3)
    assert (label(ALONE, own).preference == 1).all()
    assert label(ALONE, own).rule == "own"


def test_names_are_found_in_the_forms_people_type_and_a_typo_is_answered_with_the_nearest():
    assert find_rule("RLPD") is find_rule("hil_serl") is TABLE["hil-serl"]
    with pytest.raises(KeyError, match="did you mean 'conrft'"):
        find_rule("conrf")


def test_a_rule_without_a_cell_or_without_a_window_is_refused():
    row = TABLE["apo"]
    with pytest.raises(ValueError, match="one for each of"):
        dataclasses.replace(row, cells={Region.HUMAN: Cell()})
    with pytest.raises(ValueError, match="at least 1"):
        dataclasses.replace(row, window=0)


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        TABLE["apo"].cells[Region.HUMAN] = Cell()
