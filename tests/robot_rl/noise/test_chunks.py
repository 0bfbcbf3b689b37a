"""Worked by hand: which transitions an episode of chunks gives, and what a takeover cuts."""

import numpy as np
import pytest

from data.records import Chunk, EpisodeBuilder, Outcome, Source, Step
from data.replay import ReplayBuffer
from robot_rl.noise.chunks import NOISE, ChunkData, chunk_recordings, windows

SHAPE = (4, 1)


def episode(sources, *, success=True, executed=2, delay=0):
    """Chunks of two executed steps; action and observation are the step's number, the last is rewarded."""
    builder = EpisodeBuilder(id="one", task="t", seed=0)
    builder.start({"o": np.zeros(1, np.float32)})
    for at, source in enumerate(sources):
        if at % executed == 0:
            noise = np.full(SHAPE, at + 1, np.float32)
            builder.add_chunk(Chunk(at // executed, at, np.zeros((4, 1), np.float32), noise, delay))
        last = at == len(sources) - 1
        step = Step(
            action_base=np.zeros(1),
            action_policy=np.zeros(1),
            action_intended=np.full(1, np.nan),
            action=np.full(1, float(at)),
            chunk_id=at // executed,
            chunk_index=at % executed,
            source=source,
            reward=float(success and last),
            terminated=success and last,
            truncated=not success and last,
            wall_time=at / 10,
            monotonic_time=at / 10,
            gain=1.0,
        )
        builder.append(step, {"o": np.full(1, at + 1, np.float32)})
    return builder.finish(Outcome.SUCCESS if success else Outcome.FAILURE)


def held(one, *, noise_shape=SHAPE):
    replay = ReplayBuffer(100, chunk=2, gamma=0.5)
    data = ChunkData({"o": one.observations["o"]}, one.reward, one.terminated)
    replay.extend(chunk_recordings(one, data, noise_shape=noise_shape))
    return replay


def transitions(one, *, noise_shape=SHAPE):
    replay = held(one, noise_shape=noise_shape)
    return replay.get(replay.first + np.arange(len(replay)))


P, H = Source.POLICY, Source.HUMAN


def test_a_decision_per_chunk_with_its_noise_rewards_and_discounts():
    """Five steps: two whole chunks, then one that success ends after its first step."""
    batch = transitions(episode([P] * 5))
    assert batch.observations["o"][:, 0].tolist() == [0, 2, 4]
    assert batch.next_observations["o"][:, 0].tolist() == [2, 4, 5]
    assert batch.reward.tolist() == [0, 0, 1]
    assert batch.discount.tolist() == [0.25, 0.25, 0]
    assert batch.columns[NOISE][:, 0, 0].tolist() == [1, 3, 5]
    assert batch.action[..., 0].tolist() == [[0, 1], [2, 3], [4, 4]]


def test_a_time_limit_bootstraps_over_the_steps_that_were_executed():
    batch = transitions(episode([P] * 5, success=False))
    assert batch.discount.tolist() == [0.25, 0.25, 0.5]
    assert batch.reward.tolist() == [0, 0, 0]


def test_a_takeover_cuts_the_policys_chunk_and_bootstraps_and_a_persons_steps_are_no_decision():
    """A person takes steps 3 to 5, which is in the middle of the chunks that start at 2 and 4."""
    batch = transitions(episode([P, P, P, H, H, H, P, P]))
    assert batch.observations["o"][:, 0].tolist() == [0, 2, 6]
    assert batch.next_observations["o"][:, 0].tolist() == [2, 3, 8]
    assert batch.discount.tolist() == [0.25, 0.5, 0]
    assert batch.reward.tolist() == [0, 0, 0.5]


def test_executed_stretches_start_anywhere_and_a_persons_count_too():
    batch = transitions(episode([P, P, P, H, H, H, P, P]), noise_shape=None)
    assert batch.observations["o"][:, 0].tolist() == list(range(8))
    assert batch.next_observations["o"][:, 0].tolist() == [2, 3, 3, 5, 6, 6, 8, 8]
    assert batch.action[3, :, 0].tolist() == [3, 4]


def test_a_chunk_that_was_computed_while_the_robot_moved_is_no_decision_of_that_state():
    assert len(held(episode([P] * 4, delay=1))) == 0


def test_noise_of_another_base_is_refused():
    with pytest.raises(ValueError, match=r"noise of shape \(4, 1\), the base draws \(5, 1\)"):
        transitions(episode([P] * 4), noise_shape=(5, 1))


def test_windows_repeat_the_first_row():
    assert windows(np.arange(4), 3).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
