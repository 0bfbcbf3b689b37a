"""The control loop on an environment and a policy whose every number is known."""

import dataclasses

import numpy as np
import pytest

from data.records import Outcome, SegmentKind, Source
from hardware.clock import SimulatedClock
from robot_rl.arbiter import Executed, LimitArbiter, Proposal
from robot_rl.control import ControlLoop, LoopConfig, run_wave
from robot_rl.refiner import Refiner
from tests.robot_rl.scripted import FEATURES, SPEC, CountingEnv, RampPolicy, Shift

ENDLESS = {"endless": True}


def test_executes_each_chunk_as_far_as_the_policy_says_and_asks_anew() -> None:
    policy = RampPolicy(horizon=4, executed=3)
    (episode,) = run_wave([CountingEnv()], [0], policy, options=ENDLESS)
    first = [0.1, 0.11, 0.12, 0.2, 0.21, 0.22, 0.3, 0.31, 0.32, 0.4]
    np.testing.assert_allclose(episode.action[:, 0], first, atol=1e-6)
    assert episode.chunk_id.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert episode.chunk_index.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert [chunk.first_step for chunk in episode.chunks] == [0, 3, 6, 9]


def test_a_policy_sees_its_own_base_chunk_and_never_the_corrected_one() -> None:
    policy = RampPolicy()
    run_wave([CountingEnv()], [0], policy, Refiner(correct=Shift(0.5)), options=ENDLESS)
    np.testing.assert_allclose(policy.calls[1].previous_chunk[0, :, 0], [0.1, 0.11, 0.12, 0.13], atol=1e-6)
    assert policy.calls[1].consumed.tolist() == [3]


def test_a_late_chunk_skips_the_actions_whose_time_has_passed() -> None:
    policy = RampPolicy(horizon=6, executed=3)
    (episode,) = run_wave([CountingEnv()], [0], policy, delay=2, options=ENDLESS)
    # Asked after step 1 of the first chunk, taken up two steps later at its index 2.
    np.testing.assert_allclose(
        episode.action[:9, 0], [0.1, 0.11, 0.12, 0.22, 0.23, 0.24, 0.32, 0.33, 0.34], atol=1e-6
    )
    assert episode.chunk_index[:9].tolist() == [0, 1, 2, 2, 3, 4, 2, 3, 4]
    assert [chunk.delay for chunk in episode.chunks][:3] == [0, 2, 2]


def test_a_delay_beyond_the_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="A delay of 2 steps does not fit a chunk of 4 actions"):
        ControlLoop([CountingEnv()], RampPolicy(), config=LoopConfig(delay=2))


def test_arbiters_that_are_not_one_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match="1 arbiters for 2 rows"):
        ControlLoop(
            [CountingEnv(), CountingEnv()],
            RampPolicy(),
            arbiters=[LimitArbiter(RampPolicy().spec.action_spec)],
        )


def test_records_base_corrected_and_executed_action_with_the_limits_between() -> None:
    (episode,) = run_wave([CountingEnv()], [0], RampPolicy(), Refiner(correct=Shift(0.95)), options=ENDLESS)
    np.testing.assert_allclose(episode.action_base[:, 0] + 0.95, episode.action_policy[:, 0])
    np.testing.assert_allclose(episode.action, episode.action_policy.clip(-1, 1))
    assert (episode.action_policy[:, 0] > 1).all()
    assert episode.extra["contact_force_n"].tolist() == list(range(1, 11))


def test_gain_scales_the_correction_and_zero_leaves_the_base_bit_equal() -> None:
    base, none, half = (
        run_wave([CountingEnv()], [0], RampPolicy(), refiner, gain=gain, options=ENDLESS)[0]
        for refiner, gain in (
            (None, 1.0),
            (Refiner(correct=Shift(0.3)), 0.0),
            (Refiner(correct=Shift(0.3)), 0.5),
        )
    )
    np.testing.assert_array_equal(none.action, base.action)
    np.testing.assert_allclose(half.action, base.action + 0.15)
    assert set(half.gain) == {0.5}


def test_history_repeats_the_first_observation_and_starts_without_corrections() -> None:
    corrector = Shift(0.3)
    run_wave([CountingEnv()], [0], RampPolicy(), Refiner(correct=corrector), options=ENDLESS)
    wrench, correction = zip(*corrector.past[:5], strict=True)
    assert wrench == (0, 0, 0, 1, 2)
    np.testing.assert_allclose(correction, (0, 0.3, 0.3, 0.3, 0.3))


def test_rows_do_not_depend_on_their_neighbours() -> None:
    alone = run_wave([CountingEnv()], [5], RampPolicy(noise_share=0.1), options=ENDLESS)[0]
    envs = [CountingEnv() for _ in range(3)]
    among = run_wave(envs, [4, 5, 6], RampPolicy(noise_share=0.1), options=ENDLESS)[1]
    np.testing.assert_array_equal(alone.action, among.action)


def test_rows_end_on_their_own_and_outcomes_follow_the_environment() -> None:
    envs = [CountingEnv() for _ in range(2)]
    soon, never = run_wave(envs, [0, 6], RampPolicy(), Refiner(correct=Shift(0.4)))
    assert (len(soon), soon.outcome, soon.reward.tolist()) == (2, Outcome.SUCCESS, [0.0, 1.0])
    assert soon.terminated.tolist() == [False, True]
    assert (len(never), never.outcome, bool(never.truncated[-1])) == (10, Outcome.FAILURE, True)


class TakesOverAtStep(LimitArbiter):
    """A person executes 0.5 from step 2 on for two steps."""

    def __init__(self) -> None:
        super().__init__(SPEC)

    def begin_episode(self, seed: int) -> None:
        assert seed == 0
        self.asked = 0

    def control(self, stamp: float) -> Source:
        self.asked += 1
        return Source.HUMAN if self.asked in {3, 4} else Source.POLICY

    def resolve(self, proposal: Proposal, stamp: float) -> Executed:
        if proposal.command_id in {2, 3}:
            hand = np.array([0.5, 0.5])
            return Executed(
                hand, Source.HUMAN, "it drifts", proposal.command_id, hand, SegmentKind.CORRECTION
            )
        return super().resolve(proposal, stamp)


def test_a_takeover_is_a_segment_of_its_own_and_only_the_executed_action_is_the_persons() -> None:
    loop = ControlLoop([CountingEnv()], RampPolicy(), arbiters=[TakesOverAtStep()])
    (episode,) = loop.run([0], options=ENDLESS)
    assert episode.source[:6].tolist() == ["policy", "policy", "human", "human", "policy", "policy"]
    assert episode.segment_id[:6].tolist() == [0, 0, 1, 1, 2, 2]
    assert episode.segment_kind[1:5].tolist() == ["none", "correction", "correction", "none"]
    assert episode.action[2].tolist() == episode.action_intended[2].tolist() == [0.5, 0.5]
    np.testing.assert_array_equal(episode.action_policy[2], episode.action_base[2])
    assert np.isnan(episode.action_intended[1]).all()


def test_when_the_policy_gets_control_back_it_plans_from_what_the_robot_sees_then() -> None:
    """LeRobot 0.6.1 goes on from the observation before the takeover, and the arm snaps back (#3747)."""
    policy = RampPolicy(horizon=8, executed=6)
    loop = ControlLoop([CountingEnv()], policy, arbiters=[TakesOverAtStep()])
    (episode,) = loop.run([0], options=ENDLESS)
    assert episode.chunk_id[:6].tolist() == [0, 0, 0, 0, 1, 1]
    assert episode.chunk_index[:6].tolist() == [0, 1, 2, 3, 0, 1]
    asked = policy.calls[1]
    assert asked.previous_chunk is None
    np.testing.assert_allclose(
        asked.observation["observation.state"][0, 0], episode.observations["observation.state"][4]
    )
    # The recorded plans say the same.
    assert [(chunk.id, chunk.first_step, chunk.delay) for chunk in episode.chunks[:2]] == [
        (0, 0, 0),
        (1, 4, 0),
    ]


def test_a_chunk_in_flight_is_dropped_when_the_policy_gets_control_back() -> None:
    policy = RampPolicy(horizon=9, executed=4)
    loop = ControlLoop([CountingEnv()], policy, config=LoopConfig(delay=3), arbiters=[TakesOverAtStep()])
    (episode,) = loop.run([0], options=ENDLESS)
    # Asked at step 1, it would have acted from step 4 on; there the policy starts afresh instead.
    assert [(chunk.id, chunk.first_step) for chunk in episode.chunks][:3] == [(0, 0), (1, 1), (2, 4)]
    assert episode.chunk_id[4:6].tolist() == [2, 2]
    assert policy.calls[2].previous_chunk is None


def test_a_takeover_in_one_row_changes_nothing_in_the_others() -> None:
    policies, episodes = [RampPolicy(noise_share=0.1) for _ in range(2)], []
    for policy, person in zip(policies, (LimitArbiter(SPEC), TakesOverAtStep()), strict=True):
        envs = [CountingEnv(), CountingEnv()]
        loop = ControlLoop(envs, policy, arbiters=[person, LimitArbiter(SPEC)])
        episodes.append(loop.run([0, 5], options=ENDLESS))
    (_, alone), (taken, beside) = episodes
    # The ramp counts calls, so only the noise is compared: it is each row's own.
    for mine, other in zip(alone.chunks, beside.chunks, strict=True):
        assert (mine.first_step, mine.delay) == (other.first_step, other.delay)
        np.testing.assert_array_equal(mine.noise, other.noise)
    assert taken.chunks[2].first_step == 4


def test_a_step_that_begins_late_is_counted_and_not_made_up_for() -> None:
    class Stalls(SimulatedClock):
        """The third wait ends 0.3 s late."""

        waits = 0
        due: list[float] = []  # noqa: RUF012

        def sleep_until(self, t: float) -> float:
            self.waits += 1
            self.due.append(t)
            super().sleep_until(t + 0.3 * (self.waits == 3))
            return self.now() - t

    clock = Stalls()
    (episode,) = ControlLoop([CountingEnv()], RampPolicy(), clock=clock).run([0], options=ENDLESS)
    assert episode.metadata["missed_ticks"] == 1
    assert episode.metadata["longest_lateness_s"] == pytest.approx(0.3)
    np.testing.assert_allclose(clock.due[:5], [0.1, 0.2, 0.3, 0.7, 0.8])


class Pushes:
    """Somebody who always acts."""

    def begin_episode(self, seed: int) -> None:
        self.seed = seed

    def control(self, stamp: float) -> Source:
        return Source.DEMO

    def resolve(self, proposal: Proposal, stamp: float) -> Executed:
        assert np.isnan(proposal.action).all()
        hand = np.array([0.3, 0.0])
        return Executed(hand, Source.DEMO, "alone", proposal.command_id, hand)


def test_without_a_policy_who_holds_control_is_recorded_alone_and_the_clock_paces() -> None:
    config = LoopConfig(operator="somebody")
    clock = SimulatedClock(start=5.0)
    envs = [CountingEnv(), CountingEnv()]
    loop = ControlLoop(envs, None, config=config, clock=clock, arbiters=[Pushes(), Pushes()])
    soon, late = loop.run([0, 1])
    assert (soon.id, soon.operator, soon.base_version, soon.robot) == (
        "countingenv-demo-00000000", "somebody", "", "",
    )  # fmt: skip
    assert set(late.source) == {Source.DEMO}
    assert set(late.chunk_id) == set(late.chunk_index) == {-1}
    assert np.isnan(late.action_base).all()
    assert np.isnan(late.action_policy).all()
    assert late.chunks == ()
    assert (len(soon), len(late)) == (4, 7)
    np.testing.assert_allclose(late.monotonic_time, 5.0 + 0.1 * np.arange(7))


def test_simulated_episodes_are_stamped_with_simulated_time() -> None:
    """Ten steps a second, however long the computer takes: a pause for planning is no gap."""
    (episode,) = run_wave([CountingEnv()], [1], RampPolicy())
    np.testing.assert_allclose(episode.monotonic_time, 0.1 * np.arange(len(episode)))


@pytest.mark.parametrize("given", [{}, {"refiner": Refiner(), "arbiters": [Pushes()]}])
def test_a_loop_in_which_nobody_acts_or_nothing_is_refined_is_refused(given) -> None:
    with pytest.raises(ValueError, match="arbiters must say who acts"):
        ControlLoop([CountingEnv()], None, **given)


class NamedRobot(CountingEnv):
    robot = "arm-7"


def test_an_episode_names_the_robot_that_the_environment_says() -> None:
    (episode,) = run_wave([NamedRobot()], [0], RampPolicy())
    assert episode.robot == "arm-7"


def test_a_refiner_made_for_another_base_is_refused() -> None:
    with pytest.raises(ValueError, match="made for the base other"):
        ControlLoop([CountingEnv()], RampPolicy(), Refiner(correct=Shift(0.1), base_hash="other"))


class OtherTask(CountingEnv):
    features = {"observation.state": FEATURES["observation.wrench"]}  # noqa: RUF012 - the task contract
    action_spec = dataclasses.replace(CountingEnv.action_spec, rate_hz=20.0)


def test_a_policy_of_another_task_is_refused_and_every_difference_named() -> None:
    with pytest.raises(ValueError, match=r"another task: 'observation\.state': shape .* rate is 20\.0"):
        ControlLoop([OtherTask()], RampPolicy())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_action_that_is_not_finite_is_never_executed(value: float) -> None:
    env = CountingEnv()
    with pytest.raises(ValueError, match=r"proposes (nan|-?inf) for arm\.x; nothing is executed"):
        run_wave([env], [0], RampPolicy(), Refiner(correct=Shift(value)))
    assert env.steps == 0
