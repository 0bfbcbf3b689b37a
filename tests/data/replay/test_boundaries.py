"""Whatever was recorded: no transition and no chunk crosses what it must not cross."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.events import EventKind
from data.labels import label
from data.replay import Recording, ReplayBuffer

from ..labels.timelines import PERIOD, timeline

texts = st.text(alphabet="ppphhr|", min_size=1, max_size=25)
shapes = st.tuples(st.sampled_from([None, 1, 2, 3, 7]), st.integers(1, 4))


def numbered(index, text, terminated, late):
    """Episode whose observation and action values name the episode and the step: 1000 e + t."""
    gaps = np.zeros(len(text))
    gaps[[t for t in late if t < len(text)]] = 1.0
    times = PERIOD * np.arange(len(text)) + np.cumsum(gaps)
    reward = 1000.0 * index + np.arange(len(text))
    episode = timeline(text, terminated=terminated, times=times, reward=reward, id_=f"e{index}")
    steps = np.arange(len(text) + 1, dtype=np.float32)[:, None]
    return replace(
        episode,
        observations={"observation.state": 1000 * index + steps},
        action=1000.0 * index + steps[:-1],
    )


@settings(max_examples=60)
@given(
    st.text(alphabet="ppdhr|", min_size=1, max_size=25),
    st.booleans(),
    st.lists(st.integers(1, 24), max_size=2),
    st.sampled_from(
        [(), ((EventKind.PAUSE, 0.1), (EventKind.RESUME, 0.3)), ((EventKind.EMERGENCY_STOP, 0.2),)]
    ),
)
def test_without_labels_everything_is_replayed_as_hil_serl_does(text, terminated, late, events):
    episode = replace(numbered(1, text, terminated, late), events=timeline(text, events=events).events)
    bare, labelled = Recording.of(episode), Recording.of(episode, label(episode, "hil-serl"))
    for name in ("ends", "continuous", "starts", "actor"):
        np.testing.assert_array_equal(getattr(bare, name), getattr(labelled, name), err_msg=name)
    assert bare.judged == labelled.judged


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(texts, st.booleans(), st.lists(st.integers(1, 24), max_size=2)), min_size=1, max_size=5
    ),
    shapes,
    st.integers(0, 40),
)
def test_every_transition_stays_inside_what_it_may_use(made, shape, spare):
    episodes = [numbered(i, *facts) for i, facts in enumerate(made)]
    chunk, n_step = shape
    gamma = 0.9
    capacity = max(len(episode) for episode in episodes) + 1 + spare
    replay = ReplayBuffer(max(capacity, 2), chunk=chunk, n_step=n_step, gamma=gamma)
    labels = [label(episode, "hil-serl", period=PERIOD) for episode in episodes]
    given_ = [replay.add(episode, one) for episode, one in zip(episodes, labels, strict=True)]
    assert given_ == [int(one.critic.sum()) for one in labels]
    if not len(replay):
        return
    batch = replay.get(np.arange(replay.first, replay.first + len(replay)))
    reach = n_step * (chunk or 1)
    actions = batch.action[..., 0].reshape(len(batch), -1)
    for i in range(len(batch)):
        which, t = divmod(int(batch.observations["observation.state"][i, 0]), 1000)
        later, after = divmod(int(batch.next_observations["observation.state"][i, 0]), 1000)
        episode, found = episodes[which], labels[which]
        span = range(t, after)
        assert later == which
        assert len(span) == batch.steps[i] <= reach
        assert found.continuous[t:after].all()
        assert len(set(found.block[t:after].tolist())) == 1
        # As far as it may: it stops at its reach, at the end of the recording or before lost time.
        stopped = after == len(episode) or not found.continuous[after]
        assert len(span) == reach or stopped
        discounts = gamma ** np.arange(len(span))
        np.testing.assert_allclose(batch.reward[i], discounts @ episode.reward[t:after], rtol=1e-5)
        ended = not found.bootstrap[after - 1]
        assert batch.terminated[i] == ended
        assert batch.truncated[i] == (stopped and not ended)
        np.testing.assert_allclose(batch.discount[i], 0.0 if ended else gamma ** len(span), rtol=1e-6)
        inside = actions[i][batch.mask[i]]
        np.testing.assert_array_equal(inside, episode.action[t : t + len(inside), 0])
        assert len(inside) == min(len(span), chunk or 1) == batch.length[i]
        imitable = actions[i][batch.actor_mask[i]]
        np.testing.assert_array_equal(imitable, episode.action[t : t + len(imitable), 0])
        assert len(set(found.segment[t : t + len(imitable)].tolist())) == 1
        assert len(set(episode.source[t : t + len(imitable)].tolist())) == 1


@given(texts, st.integers(2, 6))
def test_an_actors_chunk_does_not_mix_what_is_imitated_with_what_is_not(text, chunk):
    episode = numbered(0, text, True, [])
    found = label(episode, "hg-dagger", period=PERIOD)
    replay = ReplayBuffer(30, chunk=chunk, draw="keep")
    if not replay.add(episode, found):
        return
    batch = replay.get(np.arange(len(replay)))
    for i, t in enumerate(batch.observations["observation.state"][:, 0].astype(int)):
        assert found.bc_weight[t : t + batch.actor_length[i]].all()
