"""Cases that the methods' papers leave open, and the errors."""

import numpy as np
import pytest

from data.labels import imitation_actions, label

from .timelines import PERIOD, timeline

NAN = np.nan


def habc(episode, **options):
    return label(episode, "habc", gate=np.ones(len(episode)), **options)


def test_a_takeover_at_the_last_step_leaves_no_suffix_and_one_human_step():
    found = label(timeline("pppppph"), "apo", window=3)
    assert list(found.region) == ["P0"] * 3 + ["P1"] * 3 + ["H"]
    assert list(found.preference) == [1, 1, 1, 0, 0, 0, 2]


def test_a_takeover_is_a_cut_with_a_bootstrap_and_no_terminal():
    found = label(timeline("pppphhhh"), "lwd")
    assert found.bootstrap[:7].all()
    assert not found.bootstrap[7]
    assert found.continuous.all()
    assert found.critic.all()
    assert list(found.segment) == [0] * 4 + [1] * 4
    assert list(found.block) == [0] * 8


def test_a_takeover_with_a_gap_drops_the_step_that_crosses_it_and_says_so():
    times = PERIOD * np.array([0, 1, 2, 3, 60, 61, 62, 63])
    found = label(timeline("pppphhhh", times=times), "lwd")
    assert list(found.critic) == [True] * 3 + [False] + [True] * 4
    assert found.bootstrap[3]
    assert list(found.block) == [0] * 4 + [1] * 4
    assert found.notes == ("1 transitions are left out: time was lost before their next state.",)


def test_a_time_limit_bootstraps():
    found = label(timeline("pppp", "failure", terminated=False), "hil-serl")
    assert found.bootstrap.all()


def test_a_success_pressed_while_a_person_acts_is_nobodys_but_the_persons():
    found = habc(timeline("pppphhhh"))
    assert np.isnan(found.viability).all()
    assert found.progress.all()


@pytest.mark.parametrize(("suffix", "labelled"), [(7, 0), (8, 8)])
def test_a_success_soon_after_the_hand_back_is_no_merit_of_the_policy(suffix, labelled):
    found = habc(timeline("pppphh" + "p" * suffix, chunk=8))
    assert np.isfinite(found.viability).sum() == labelled
    assert (len(found.notes) == 1) == (not labelled)


def test_without_recorded_chunks_one_second_of_the_policy_is_needed():
    assert np.isnan(habc(timeline("pphh" + "p" * 19)).viability).all()
    assert np.isfinite(habc(timeline("pphh" + "p" * 20)).viability).sum() == 20
    assert np.isfinite(habc(timeline("pphh" + "p" * 19), suffix=19).viability).sum() == 19


def test_only_the_suffix_after_the_last_of_several_takeovers_is_viable():
    found = habc(timeline("pphhppphhpppp"), suffix=1)
    np.testing.assert_array_equal(found.viability, [NAN] * 9 + [1] * 4)


def test_an_advantage_may_look_at_another_source_but_never_across_a_pause():
    found = habc(timeline("pphhpp||pp"), suffix=1)
    #                                p     p     h     h     p     p      |      |     p     p
    assert list(found.continuous) == [True, True, True, True, True, False, False, False, True, True]


def test_a_gate_is_not_needed_where_time_was_lost_and_nowhere_else_may_it_be_missing():
    episode = timeline("pppp||pppp")
    gate = np.full(10, 0.5)
    gate[[3, 4, 5]] = NAN
    found = label(episode, "habc", gate=gate)
    np.testing.assert_array_equal(found.bc_weight, [0.5, 0.5, 0.5, 0, 0, 0, 0.5, 0.5, 0.5, 0.5])
    gate[1] = NAN
    with pytest.raises(ValueError, match="not finite"):
        label(episode, "habc", gate=gate)
    with pytest.raises(ValueError, match="negative"):
        label(episode, "habc", gate=np.full(10, -1.0))


def test_rac_ends_at_the_first_hand_back_and_reports_what_it_dropped():
    found = label(timeline("ppprrhhppphhpp"), "rac")
    np.testing.assert_array_equal(found.bc_weight, [0] * 3 + [1] * 4 + [0] * 7)
    assert found.notes == (
        "RaC ends an episode at the first hand-back: 7 steps from step 7 on are dropped, "
        "2 of them a person's.",
    )


def test_rac_drops_nothing_when_control_was_never_given_back():
    found = label(timeline("ppprrhh", "failure"), "rac")
    np.testing.assert_array_equal(found.bc_weight, [0] * 3 + [1] * 4)
    assert not found.notes


def test_a_rewind_is_replayed_but_no_example():
    found = label(timeline("pprrhh"), "hil-serl")
    assert found.critic.all()
    assert list(found.prior) == [False] * 4 + [True] * 2
    assert list(label(timeline("pprrhh"), "hg-dagger").bc_weight) == [0, 0, 0, 0, 1, 1]


def test_an_operator_who_holds_still_is_imitated_unless_the_caller_says_not_to():
    episode = timeline("pphhhhp")
    still = np.array([0, 1, 0, 1, 1, 0, 1], bool)
    assert list(label(episode, "hg-dagger").bc_weight) == [0, 0, 1, 1, 1, 1, 0]
    found = label(episode, "hg-dagger", parked=still)
    assert list(found.bc_weight) == [0, 0, 1, 0, 0, 1, 0]
    assert found.notes == ("2 steps at which the operator held still are not imitated.",)
    with pytest.raises(ValueError, match="parked has shape"):
        label(episode, "hg-dagger", parked=still[:3])


STOP = ("emergency_stop", 3.5 * PERIOD)


def test_an_emergency_stop_is_neither_failure_nor_the_end_of_the_task():
    found = habc(timeline("pppp", "failure", events=[STOP]))
    assert np.isnan(found.viability).all()
    assert found.bootstrap.all()
    unknown = habc(timeline("pppp", "unknown", events=[STOP]))
    assert np.isnan(unknown.viability).all()


def test_an_emergency_stop_that_the_operator_marks_a_failure_is_one():
    found = habc(timeline("pppp", "failure", events=[STOP, ("mark_failure", 3.6 * PERIOD)]))
    assert (found.viability == 0).all()
    assert not found.bootstrap[3]


def test_the_frame_at_which_the_key_was_pressed_is_the_policys():
    found = label(timeline("pphhh", events=[("takeover", 2.5 * PERIOD)]), "apo", window=1)
    assert list(found.region) == ["P0", "P0", "P1", "H", "H"]


def test_a_pause_between_the_policy_and_the_person_is_still_a_takeover():
    found = label(timeline("pppp||hhh"), "apo", window=2)
    assert list(found.preference) == [1, 1, 0, 0, -1, -1, 2, 2, 2]


def test_a_window_does_not_reach_over_a_break():
    times = PERIOD * np.array([0, 1, 2, 60, 61, 62, 63, 64])
    found = label(timeline("ppppphhh", times=times), "apo", window=10)
    assert list(found.preference) == [1, 1, 1, 0, 0, 2, 2, 2]


def test_a_demonstrated_end_is_not_the_policys_success():
    assert np.isnan(habc(timeline("ppppdddd"), suffix=1).viability).all()


def test_a_reward_that_fell_into_a_pause_is_reported():
    found = label(timeline("pppp|", reward=[0, 0, 0, 0, 1.0]), "lwd")
    assert "The rewards of steps [4] are not learned from: they fell into lost time." in found.notes
    assert label(timeline("pppp|", reward=[0, 0, 0, 0, 1.0]), "hg-dagger").notes == ()


def test_a_person_is_imitated_in_what_they_meant_and_the_policy_in_what_was_executed():
    np.testing.assert_array_equal(imitation_actions(timeline("pphhd"))[:, 0], [0, 1, -2, -3, -4])


@pytest.mark.parametrize(("rule", "name"), [("recap", "advantage"), ("habc", "gate"), ("help", "classes")])
def test_values_that_a_method_needs_are_asked_for_by_name(rule, name):
    with pytest.raises(ValueError, match=f"needs {name} of shape \\(4,\\)"):
        label(timeline("pppp"), rule)
    with pytest.raises(ValueError, match=f"{name} has shape \\(3,\\)"):
        label(timeline("pppp"), rule, **{name: np.ones(3)})
    assert label(timeline("hhhh"), rule).bc_weight.all()  # no step of the policy: nothing is needed


def test_values_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"classes holds \['good'\]; allowed"):
        label(timeline("pp"), "help", classes=np.array(["good", "idle"]))
    with pytest.raises(ValueError, match="advantage is not finite"):
        label(timeline("pp"), "recap", advantage=np.array([NAN, 1.0]))
    with pytest.raises(ValueError, match="at least 1"):
        label(timeline("pp"), "apo", window=0)
