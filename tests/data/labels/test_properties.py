"""What holds for every recording, whoever acted when."""

from dataclasses import fields, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data.labels import TABLE, count, label
from data.records import Episode

from .timelines import timeline

CLASSES = np.array(["progress", "recovery", "idle", "failure"])
texts = st.text(alphabet="ppphhr|", min_size=1, max_size=40)
with_demos = st.text(alphabet="pphhrd|", min_size=1, max_size=30)
outcomes = st.sampled_from(["success", "failure", "unknown"])
rules = st.sampled_from(sorted(TABLE))


def labelled(episode, rule, **options):
    """Label with values that depend on nothing but a step's action, which names the step."""
    number = episode.action[:, 0].astype(int)
    values = {
        "advantage": np.sin(number),
        "gate": 1 + np.tanh(np.cos(number)),
        "classes": CLASSES[number % 4],
        "suffix": 1,
        "period": 0.05,
    }
    return label(episode, rule, **values | options)


def without(episode, rows):
    """The episode with only some of its steps; the observation after a removed step goes with it."""
    named = {f.name: getattr(episode, f.name) for f in fields(Episode)}
    columns = {k: v[rows] for k, v in named.items() if isinstance(v, np.ndarray)}
    observations = {k: v[np.append(rows, len(episode))] for k, v in episode.observations.items()}
    return replace(episode, **columns, observations=observations)


def same(a, b):
    return all(np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a)


@given(st.lists(st.tuples(texts, outcomes), min_size=2, max_size=4), rules)
def test_labels_of_an_episode_depend_on_no_other_episode(made, rule):
    episodes = [timeline(text, outcome, id_=f"e{i}") for i, (text, outcome) in enumerate(made)]
    one_by_one = [labelled(episode, rule).columns() for episode in episodes]
    backwards = [labelled(episode, rule).columns() for episode in reversed(episodes)][::-1]
    assert all(map(same, one_by_one, backwards))
    assert [len(columns["keep"]) for columns in one_by_one] == [len(text) for text, _ in made]


@given(st.integers(0, 6), st.integers(1, 30), st.integers(1, 8))
def test_a_takeover_before_step_k_stays_inside_the_episode(before, window, human):
    found = label(timeline("p" * before + "h" * human), "apo", window=window)
    want = [1] * max(0, before - window) + [0] * min(before, window) + [2] * human
    assert found.preference.tolist() == want


@given(texts, outcomes, rules, st.integers(1, 12))
def test_removing_the_pauses_changes_no_label(text, outcome, rule, window):
    episode = timeline(text, outcome)
    rows = np.flatnonzero(episode.source != "paused")
    if not len(rows):
        return
    whole = labelled(episode, rule, window=window).columns()
    shorter = labelled(without(episode, rows), rule, window=window).columns()
    if episode.source[-1] == "paused":
        # The observation after the last step was only seen after the pause: removal cannot show that.
        at_end = rows[-1]
        for name in ("critic", "progress", "continuous", "keep", "online", "prior"):
            whole[name] = whole[name].copy()
            whole[name][at_end] = shorter[name][-1]
        whole["bc_weight"] = np.where(np.isnan(whole["bc_weight"]), 0, whole["bc_weight"])
    assert same({k: v[rows] for k, v in whole.items()}, shorter)


@given(texts, st.integers(1, 12))
def test_no_window_before_a_takeover_relabels_a_person(text, window):
    episode = timeline(text)
    found = label(episode, "apo", window=window)
    person = (episode.source == "human") & (episode.segment_kind != "rewind")
    assert (found.preference[person] == 2).all()
    assert (found.preference[episode.source == "policy"] < 2).all()


@given(texts)
def test_a_success_with_interventions_praises_no_step_before_the_last_of_them(text):
    episode = timeline(text, "success")
    found = labelled(episode, "habc")
    human = np.flatnonzero(episode.source == "human")
    if len(human):
        assert np.isnan(found.viability[: human[-1] + 1]).all()
    assert np.isnan(found.viability[episode.source != "policy"]).all()


@given(st.lists(st.tuples(with_demos, outcomes, st.integers(0, 2)), min_size=1, max_size=5), rules)
def test_the_count_over_a_fleet_is_the_sum_over_its_robots(made, rule):
    found = [(robot, labelled(timeline(text, outcome), rule)) for text, outcome, robot in made]
    whole = count(labels for _, labels in found)
    parts = [count(labels for robot, labels in found if robot == one) for one in range(3)]
    assert {k: v for k, v in whole.items() if v} == {
        k: total for k in whole if (total := sum(part[k] for part in parts))
    }


@given(with_demos, outcomes, rules)
def test_a_paused_step_serves_nothing_and_what_is_kept_serves_something(text, outcome, rule):
    found = labelled(timeline(text, outcome), rule)
    paused = found.region == "paused"
    assert not found.keep[paused].any()
    assert (found.segment[paused] == -1).all()
    assert (found.block[paused] == -1).all()
    assert not (found.online | found.prior)[~found.keep].any()


@given(with_demos, outcomes, rules)
def test_segments_of_an_actor_lie_inside_blocks_of_a_critic(text, outcome, rule):
    episode = timeline(text, outcome)
    found = labelled(episode, rule)
    for number in set(found.segment.tolist()) - {-1}:
        inside = found.segment == number
        assert len(set(found.block[inside])) == 1
        assert len(set(episode.source[inside])) == 1
    # Within a block every step leads to the next; at its end time was lost, or the episode ended.
    for number in set(found.block.tolist()) - {-1}:
        rows = np.flatnonzero(found.block == number)
        assert (np.diff(rows) == 1).all()
        assert found.continuous[rows[:-1]].all()
        assert found.continuous[rows[-1]] == (rows[-1] == len(episode) - 1)


@given(with_demos, outcomes, rules, st.booleans())
def test_only_the_end_of_the_task_stops_the_bootstrap(text, outcome, rule, terminated):
    found = labelled(timeline(text, outcome, terminated=terminated), rule)
    assert found.bootstrap[:-1].all()
    assert found.bootstrap[-1] == (not terminated)


@given(text=texts, rule=st.sampled_from(sorted(set(TABLE) - {"rac"})))
def test_a_rewind_is_no_example_except_for_rac(text, rule):
    episode = timeline(text)
    rewound = (episode.source == "human") & (episode.segment_kind == "rewind")
    found = labelled(episode, rule)
    assert not found.bc_weight[rewound].any()
    assert (found.indicator[rewound] == -1).all()
    assert (found.preference[rewound] == -1).all()
    assert not found.prior[rewound].any()
