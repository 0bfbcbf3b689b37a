from dataclasses import replace

import numpy as np
import pytest

from data.features import Feature
from data.labels import label
from data.replay import Prioritised, Recording, ReplayBuffer, sample_mixture
from data.replay.batch import equal
from data.statistics import Scaling

from ..labels.timelines import timeline


def recording(index, steps, *, ends=True, width=2, **options):
    """Episode whose numbers name it: state 100 e + t, picture of the same value, action 1000 e + t."""
    rows = np.arange(steps + 1)
    values = {
        "observations": {
            "observation.state": np.repeat(100.0 * index + rows, width).reshape(-1, width).astype(np.float32),
            "observation.images.wrist": np.broadcast_to(
                (10 * index + rows).astype(np.uint8)[:, None, None, None], (steps + 1, 4, 5, 3)
            ),
        },
        "action": (1000.0 * index + rows[:-1])[:, None],
        "reward": np.arange(steps, dtype=float),
        "ends": (rows[:-1] == steps - 1) & ends,
        "id": f"e{index}",
        "task": f"task {index % 2}",
    }
    return Recording(**values | options)


def everything(replay):
    return replay.get(np.arange(replay.first, replay.first + len(replay)))


def test_the_next_observation_is_the_row_after_pictures_too():
    replay = ReplayBuffer(20)
    assert replay.extend([recording(1, 3), recording(2, 2)]) == 5
    batch = everything(replay)
    assert batch.observations["observation.state"][:, 0].tolist() == [100, 101, 102, 200, 201]
    assert batch.next_observations["observation.state"][:, 0].tolist() == [101, 102, 103, 201, 202]
    assert batch.next_observations["observation.images.wrist"].shape == (5, 4, 5, 3)
    assert batch.next_observations["observation.images.wrist"].dtype == np.uint8
    assert batch.next_observations["observation.images.wrist"][:, 0, 0, 0].tolist() == [11, 12, 13, 21, 22]
    assert batch.action[:, 0].tolist() == [1000, 1001, 1002, 2000, 2001]
    assert batch.terminated.tolist() == [False, False, True, False, True]
    np.testing.assert_array_equal(batch.discount, np.float32([0.99, 0.99, 0, 0.99, 0]))


def test_a_picture_is_stored_once():
    replay = ReplayBuffer(1000)
    replay.extend([recording(1, 10)])
    picture = 4 * 5 * 3
    assert picture * 1000 <= replay.nbytes < picture * 1000 + 100 * 1000


def test_a_chunk_repeats_its_last_action_where_the_episode_ended():
    replay = ReplayBuffer(20, chunk=4, gamma=0.5)
    replay.extend([recording(1, 3)])
    batch = everything(replay)
    assert batch.action[:, :, 0].tolist() == [
        [1000, 1001, 1002, 1002],
        [1001, 1002, 1002, 1002],
        [1002, 1002, 1002, 1002],
    ]
    assert batch.mask.tolist() == [[True] * 3 + [False], [True] * 2 + [False] * 2, [True] + [False] * 3]
    assert batch.length.tolist() == [3, 2, 1]
    assert batch.reward.tolist() == [0 + 0.5 + 0.5, 1 + 1, 2]


def test_the_tail_of_a_plan_that_a_takeover_cut_off_is_never_an_action():
    # The policy planned four actions at step 0; a person took over at step 2.
    episode = timeline("pphh", chunk=4)
    replay = ReplayBuffer(10, chunk=4)
    replay.add(episode)
    batch = everything(replay)
    assert batch.action[0, :, 0].tolist() == [
        0,
        1,
        2,
        3,
    ]  # executed, not planned (zeros), not proposed (1000 t)
    assert batch.actor_mask[0].tolist() == [True, True, False, False]
    assert batch.mask[0].tolist() == [True] * 4


def test_whole_episodes_leave_oldest_first_and_the_ring_wraps():
    replay = ReplayBuffer(10)
    for index in range(1, 8):
        replay.extend([recording(index, 3)])
        assert replay.episode_ids == [f"e{i}" for i in range(max(1, index - 1), index + 1)]
        batch = everything(replay)
        firsts = batch.observations["observation.state"][:, 0]
        held = range(max(1, index - 1), index + 1)
        assert firsts.tolist() == [100 * e + t for e in held for t in range(3)]
        np.testing.assert_array_equal(batch.next_observations["observation.state"][:, 0], firsts + 1)
        assert batch.action[:, 0].tolist() == [1000 * e + t for e in held for t in range(3)]


def test_a_chunk_over_the_end_of_the_ring_is_whole():
    replay = ReplayBuffer(7, chunk=3)
    replay.extend([recording(1, 4)])
    replay.extend([recording(2, 4)])  # rows 5, 6, 0, 1, 2
    assert everything(replay).action[0, :, 0].tolist() == [2000, 2001, 2002]
    assert everything(replay).next_observations["observation.state"][:, 0].tolist() == [203, 204, 204, 204]


def test_many_at_once_are_as_one_by_one():
    made = [recording(i, 1 + i % 4, ends=i % 3 > 0) for i in range(1, 9)]
    together, alone = ReplayBuffer(17, chunk=2, n_step=2), ReplayBuffer(17, chunk=2, n_step=2)
    total = together.extend(made)
    assert total == sum(alone.extend([one]) for one in made)
    assert together.episode_ids == alone.episode_ids
    assert equal(everything(together), everything(alone))


def test_an_episode_that_the_method_does_not_learn_from_is_not_held():
    episode = timeline("pppp", "failure")
    replay = ReplayBuffer(20)
    assert replay.add(episode, label(episode, "rac")) == 0
    assert replay.extend([recording(1, 2, starts=np.zeros(2, bool)), recording(2, 2)]) == 2
    assert replay.episode_ids == ["e2"]


def test_columns_of_the_labels_come_with_the_batch():
    episode = timeline("pphhppp")
    replay = ReplayBuffer(20, columns=("viability", "bc_weight"), draw="keep")
    gate = np.linspace(0.1, 0.7, 7)
    replay.add(episode, label(episode, "habc", gate=gate, suffix=1))
    batch = everything(replay)
    np.testing.assert_array_equal(batch.columns["bc_weight"], [0.1, 0.2, 1, 1, *gate[4:]])
    np.testing.assert_array_equal(batch.columns["viability"], [np.nan] * 4 + [1] * 3)


def test_an_intervention_replay_holds_ten_transitions_and_a_demo_replay_four():
    episode = timeline("ppphhhhppp")
    found = label(episode, "rlpd")
    replay, demos = ReplayBuffer(20), ReplayBuffer(20)
    replay.add(episode, found)
    demos.extend([Recording(**vars(Recording.of(episode, found)) | {"starts": found.prior})])
    assert (len(replay), len(demos)) == (10, 4)
    np.testing.assert_array_equal(everything(demos).action[:, 0], episode.action[3:7, 0])


def test_raw_values_are_stored_and_normalised_when_sampled():
    scaling = Scaling(
        offset=np.array([100.0, 100.0]), scale=np.array([2.0, 4.0]), bound=np.array([np.inf, 0.3])
    )
    actions = Scaling(offset=np.array([1000.0]), scale=np.array([10.0]), bound=np.array([0.01]))
    replay = ReplayBuffer(20)
    replay.extend([recording(1, 3)])
    raw = replay.sample(50, np.random.default_rng(0))
    normal = replay.sample(
        50, np.random.default_rng(0), scalings={"observation.state": scaling, "action": actions}
    )
    state = raw.observations["observation.state"]
    want = np.stack([(state[:, 0] - 100) / 2, np.minimum((state[:, 1] - 100) / 4, 0.3)], 1)
    np.testing.assert_allclose(normal.observations["observation.state"], want, rtol=1e-6)
    np.testing.assert_allclose(normal.action, (raw.action - 1000) / 10, rtol=1e-6)
    np.testing.assert_array_equal(
        normal.observations["observation.images.wrist"], raw.observations["observation.images.wrist"]
    )
    assert normal.next_observations["observation.state"].dtype == np.float32
    with pytest.raises(KeyError, match=r"no \['observation\.stat'\] to normalise"):
        raw.normalised({"observation.stat": scaling})
    assert Feature((2,), "float32").size == len(scaling.scale)


def test_what_a_batch_holds_is_a_copy():
    replay = ReplayBuffer(20)
    replay.extend([recording(1, 3)])
    batch = everything(replay)
    batch.observations["observation.state"][:] = -1
    batch.reward[:] = -1
    assert everything(replay).observations["observation.state"].min() == 100
    assert everything(replay).reward.tolist() == [0, 1, 2]


def test_the_same_seed_draws_the_same_batch():
    replay = ReplayBuffer(40, chunk=2)
    replay.extend([recording(i, 5) for i in range(1, 5)])
    first = replay.sample(32, np.random.default_rng(3))
    assert equal(first, replay.sample(32, np.random.default_rng(3)))
    assert not equal(first, replay.sample(32, np.random.default_rng(4)))


def test_every_transition_is_drawn_uniformly():
    from scipy.stats import chisquare

    replay = ReplayBuffer(12)
    replay.extend([recording(i, 3) for i in range(1, 6)])  # the ring has wrapped
    drawn = replay.sample(20_000, np.random.default_rng(0)).number - replay.first
    assert len(replay) == 9
    assert chisquare(np.bincount(drawn, minlength=9)).pvalue > 0.01


def test_a_mixture_is_what_its_halves_are():
    online, prior = ReplayBuffer(20, chunk=2), ReplayBuffer(20, chunk=2)
    online.extend([recording(1, 5)])
    prior.extend([recording(2, 5)])
    rng = np.random.default_rng(0)
    halves = online.sample(8, rng, Prioritised(online)), prior.sample(8, rng)
    batch = sample_mixture(online, prior, 16, np.random.default_rng(0), samplers=(Prioritised(online), None))
    for i, half in enumerate(halves):
        rows = slice(8 * i, 8 * i + 8)
        np.testing.assert_array_equal(batch.action[rows], half.action)
        np.testing.assert_array_equal(batch.number[rows], half.number)
        for name in ("observations", "next_observations"):
            for key, array in getattr(half, name).items():
                np.testing.assert_array_equal(getattr(batch, name)[key][rows], array)
    np.testing.assert_array_equal(batch.weight, [*halves[0].weight, *np.ones(8)])


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_mixture_holds_exactly_the_share_of_each_replay(share):
    online, prior = ReplayBuffer(20), ReplayBuffer(20)
    online.extend([recording(1, 5)])
    prior.extend([recording(2, 5)])
    batch = sample_mixture(online, prior, 32, np.random.default_rng(0), share=share)
    from_online = batch.observations["observation.state"][:, 0] < 200
    assert from_online.sum() == round(32 * share)
    assert len(batch) == 32
    assert from_online[: round(32 * share)].all()


def test_a_mixture_with_an_empty_or_unlike_replay_is_refused():
    online, prior, rng = ReplayBuffer(20), ReplayBuffer(20), np.random.default_rng(0)
    online.extend([recording(1, 5)])
    with pytest.raises(ValueError, match="holds no transition"):
        sample_mixture(online, prior, 32, rng)
    blind = recording(2, 5)
    del blind.observations["observation.images.wrist"]
    prior.extend([blind])
    with pytest.raises(ValueError, match="Only like replays can be mixed"):
        sample_mixture(online, prior, 32, rng)
    with pytest.raises(ValueError, match="between 0 and 1"):
        sample_mixture(online, prior, 32, rng, share=1.5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"action": np.full((3, 1), np.nan)}, "action of episode 'e1' is not finite in row 0"),
        ({"reward": np.array([0, np.inf, 0])}, "reward of episode 'e1' is not finite in row 1"),
        ({"reward": np.zeros(4)}, "reward of episode 'e1' has 4 rows; 3 are needed"),
        ({"observations": {}}, "at least one are needed"),
        ({"action": np.zeros(3)}, "actions of shape"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(20).extend([recording(1, 3, **wrong)])


def test_a_refused_episode_leaves_the_replay_as_it_was():
    replay = ReplayBuffer(20)
    replay.extend([recording(1, 3)])
    before = everything(replay)
    with pytest.raises(ValueError, match="a replay holds episodes of one form"):
        replay.extend([recording(2, 3), recording(3, 3, width=3)])
    assert replay.episode_ids == ["e1"]
    assert equal(everything(replay), before)


def test_demonstrations_without_rewards_are_imitated_and_no_critic_learns_from_them():
    demos = timeline("dddd", reward=np.full(4, np.nan))
    replay = ReplayBuffer(10, draw="keep")
    assert replay.add(demos, label(demos, "hg-dagger")) == 4
    assert np.isnan(replay.sample(3, np.random.default_rng(0)).reward).all()
    with pytest.raises(ValueError, match="reward of episode 'one' is not finite"):
        ReplayBuffer(10).add(demos, label(demos, "hil-serl"))


def test_great_values_are_values():
    replay = ReplayBuffer(20)
    replay.extend([recording(1, 3, action=np.full((3, 1), 1e30, np.float32))])
    assert everything(replay).action[0, 0] == np.float32(1e30)


def test_a_paused_row_without_an_action_does_no_harm():
    paused = np.array([[0.0], [np.nan], [2.0]])
    lost = np.array([True, False, False])
    replay = ReplayBuffer(20)
    found = recording(1, 3, action=paused, continuous=~lost, actor=np.array([0, -2, 2]))
    assert replay.extend([found]) == 2


def test_an_episode_longer_than_the_replay_is_refused():
    with pytest.raises(ValueError, match="has 10 steps; a replay of 10 rows holds 1 to 9"):
        ReplayBuffer(10).extend([recording(1, 10)])
    assert ReplayBuffer(10).extend([recording(1, 9)]) == 9


def test_settings_that_make_no_sense_are_refused():
    for wrong in ({"capacity": 1}, {"chunk": 0}, {"n_step": 0}, {"gamma": 1.1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ReplayBuffer(**{"capacity": 10} | wrong)


def test_an_empty_replay_says_so():
    with pytest.raises(ValueError, match="holds no transition; add episodes"):
        ReplayBuffer(10).sample(1, np.random.default_rng(0))


def test_labels_of_another_episode_and_unknown_names_are_refused():
    episode = timeline("pppp")
    with pytest.raises(ValueError, match="The labels are of episode other"):
        ReplayBuffer(10).add(episode, label(timeline("pppp", id_="other"), "lwd"))
    with pytest.raises(KeyError, match=r"observation\.wrench"):
        ReplayBuffer(10, keys=["observation.wrench"]).add(episode)
    with pytest.raises(KeyError, match="advantage"):
        ReplayBuffer(10, columns=["advantage"]).add(episode)


def test_the_action_to_imitate_is_what_the_person_meant_and_the_critic_keeps_the_executed_one(tmp_path):
    episode = timeline("pphhp")  # executes t, a person means -t
    replay = ReplayBuffer(12, chunk=2, draw="keep", imitation=True, folder=tmp_path / "rows")
    replay.add(episode, label(episode, "conrft"))
    batch = everything(replay)
    assert batch.action[..., 0].tolist() == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 4]]
    assert batch.imitation_action[..., 0].tolist() == [[0, 1], [1, -2], [-2, -3], [-3, 4], [4, 4]]
    assert batch.actor_length.tolist() == [2, 1, 2, 1, 1]
    scaled = batch.normalised({"action": Scaling(np.ones(1), np.full(1, 2.0), np.full(1, np.inf))})
    assert scaled.imitation_action[2, :, 0].tolist() == [-1.5, -2.0]
    both = sample_mixture(replay, replay, 6, np.random.default_rng(0))
    np.testing.assert_array_equal(abs(both.imitation_action), both.action)
    assert (both.imitation_action < 0).any()


def test_without_being_asked_a_replay_holds_no_action_to_imitate():
    episode = timeline("pphhp")
    plain, asked = ReplayBuffer(12), ReplayBuffer(12, imitation=True)
    plain.add(episode)
    asked.add(episode)
    assert everything(plain).imitation_action is None
    assert "imitation_action" not in plain.forms
    assert asked.nbytes - plain.nbytes == 12 * 4
    with pytest.raises(ValueError, match=r"'e1' has no imitation_action, but .* imitation=True"):
        asked.extend([recording(1, 3)])
    with pytest.raises(ValueError, match="with the same settings"):
        plain.load_state(asked.state())


def test_an_action_to_imitate_that_was_not_recorded_stands_for_the_executed_one_and_odd_ones_are_refused():
    replay = ReplayBuffer(12, imitation=True)
    with pytest.raises(ValueError, match=r"imitation_action of episode 'e1' has shape \(3, 2\)"):
        replay.extend([recording(1, 3, imitation_action=np.zeros((3, 2)))])
    with pytest.raises(ValueError, match="imitation_action of episode 'e1' is not finite in row 0"):
        replay.extend([recording(1, 3, imitation_action=np.full((3, 1), np.nan))])
    replay.add(timeline("ppp"))
    batch = everything(replay)
    np.testing.assert_array_equal(batch.imitation_action, batch.action)


def test_a_wave_is_held_as_its_episodes_one_by_one_and_refused_as_a_whole():
    wave = [timeline("ppph", id_="a"), timeline("|", id_="paused"), timeline("ppdd", id_="b")]
    labels = [label(episode, "lwd") for episode in wave]
    one_by_one, together = ReplayBuffer(40, chunk=2), ReplayBuffer(40, chunk=2)
    counts = [one_by_one.add(*pair, version=3) for pair in zip(wave, labels, strict=True)]
    assert together.add_all(wave, labels, version=3) == sum(counts) == 8
    assert equal(everything(together), everything(one_by_one))
    assert together.episode_ids == ["a", "b"]
    with pytest.raises(ValueError, match="of episode a with 4 steps, not of b"):
        together.add_all(wave[2:], labels[:1])
    wide = replace(timeline("pp", id_="wide"), observations={"observation.state": np.zeros((3, 2))})
    with pytest.raises(ValueError, match="Episode 'wide'"):
        together.add_all([timeline("pp", id_="c"), wide])
    assert together.episode_ids == ["a", "b"]
