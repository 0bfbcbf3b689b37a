"""A chunk critic learns the value of a policy whose returns are known, and is judged on other episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from data.records import Chunk, EpisodeBuilder, Outcome, Step
from robot_rl.critics.chunk_critic import ChunkCritic
from robot_rl.critics.chunk_fit import ChunkFit, Judged, check_critic, fit_chunk_critic, next_chunks

SPAN = slice(0, 2)
FIT = ChunkFit(steps=600, batch=128, learning_rate=1e-3, width=32, critics=2, average=0.97, gamma=0.9)


def episode(number, *, good, steps=6):
    """Six steps in three chunks; the task ends then, well if the actions are positive."""
    action = np.array([0.5 if good else -0.5])
    builder = EpisodeBuilder(id=f"e{number}", task="t", seed=number)
    builder.start({"observation.state": np.zeros(1, np.float32)})
    for step in range(steps):
        if step % 2 == 0:
            planned = np.full((4, 1), action[0] + 0.01 * step, np.float32)
            builder.add_chunk(Chunk(id=step // 2, first_step=step, actions=planned))
        last = step == steps - 1
        builder.append(
            Step(
                action=action,
                action_base=action,
                action_policy=action,
                chunk_id=step // 2,
                chunk_index=step % 2,
                source="policy",
                reward=float(good and last),
                terminated=last,
                wall_time=0.1 * step,
                monotonic_time=0.1 * step,
            ),
            {"observation.state": np.full(1, (step + 1) / steps, np.float32)},
        )
    return builder.finish(Outcome.SUCCESS if good else Outcome.FAILURE)


def judged(count=40):
    made = [episode(number, good=number % 2 == 0) for number in range(count)]
    return [Judged(each, each.observations["observation.state"].astype(np.float32)) for each in made]


def test_the_next_chunk_is_what_was_executed_then_what_was_planned_then_the_last_action():
    found = next_chunks(episode(0, good=True), SPAN, 1)
    assert found.shape == (6, 2, 1)
    assert found[0, :, 0].tolist() == [0.5, 0.5]
    # After step 6 the rest of the last plan (0.54), which began at step 4, then its last action for ever.
    np.testing.assert_allclose(found[4, :, 0], [0.54, 0.54], atol=1e-6)
    np.testing.assert_allclose(found[3, :, 0], [0.5, 0.54], atol=1e-6)
    np.testing.assert_allclose(next_chunks(episode(0, good=True), SPAN, 2)[5, :, 0], [0.54, 0.54], atol=1e-6)


def test_values_are_the_discounted_returns_of_the_policy(tmp_path):
    critic, check = fit_chunk_critic(tmp_path / "critic", FIT, judged(), span=SPAN, seed=0)
    assert check.explained > 0.9
    assert abs(check.bias) < 0.1
    state = torch.tensor([[0.0], [2 / 6], [4 / 6]])
    good, bad = (critic.least(state, torch.full((3, 2, 1), value)) for value in (0.5, -0.5))
    # The reward comes with the sixth step: 0.9^5 seen from the first, 0.9^3 and 0.9 from the others.
    np.testing.assert_allclose(good.tolist(), [0.9**5, 0.9**3, 0.9**1], atol=0.12)
    np.testing.assert_allclose(bad.tolist(), 0.0, atol=0.12)
    assert critic.least(state, torch.full((3, 2, 1), 0.5)).min() > bad.max()


def test_shuffled_rewards_explain_nothing_and_say_so(tmp_path, caplog):
    config = replace(FIT, shuffle_rewards=8)
    _, check = fit_chunk_critic(tmp_path / "critic", config, judged(), span=SPAN, seed=0)
    assert check.explained < 0.5
    check = replace(check, explained=0.05)
    check.warn()
    assert "explains 5 %" in caplog.text


def test_interrupted_it_ends_with_the_same_critic(tmp_path):
    whole, _ = fit_chunk_critic(tmp_path / "whole", replace(FIT, steps=40), judged(10), span=SPAN, seed=1)

    class Stop(Exception):
        pass

    from robot_rl.critics import chunk_fit

    calls, real = [], chunk_fit._loss

    def stops(*arguments):
        calls.append(None)
        if len(calls) == 31:
            raise Stop
        return real(*arguments)

    config = replace(FIT, steps=40, checkpoint_steps=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_fit, "_loss", stops)
        with pytest.raises(Stop):
            fit_chunk_critic(tmp_path / "part", config, judged(10), span=SPAN, seed=1)
    part, _ = fit_chunk_critic(tmp_path / "part", config, judged(10), span=SPAN, seed=1)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, part.state_dict()[name]), name


def test_a_critic_that_says_the_mean_explains_nothing():
    critic = ChunkCritic(1, 2, 1, critics=2, width=8)
    critic.unit.fit(np.array([[-0.5], [0.5]]))
    for parameter in critic.parameters():
        parameter.data.zero_()
    check = check_critic(critic, judged(10), SPAN, 0.9)
    assert check.explained == pytest.approx(0.0)
    assert check.bias == pytest.approx(-np.mean([0.9**5, 0.9**3, 0.9]) / 2)
    assert check.chunks == 30


def test_values_out_of_range_and_too_few_episodes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="gamma is 1"):
        replace(FIT, gamma=1.0)
    with pytest.raises(ValueError, match="width is 0"):
        replace(FIT, width=0)
    with pytest.raises(ValueError, match="holdout is 0"):
        replace(FIT, holdout=0.0)
    with pytest.raises(ValueError, match="1 episodes are not enough"):
        fit_chunk_critic(tmp_path, FIT, judged(1), span=SPAN, seed=0)
