"""When chunks are computed and when they act, with a planner whose every delay is known."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hardware.clock import SimulatedClock
from policies.errors import PolicyAwayError
from robot_rl.arbiter import LimitArbiter
from robot_rl.control import ControlLoop, LoopConfig
from robot_rl.guide.real_time import RealTimeChunking
from robot_rl.planner import BackgroundPlanner
from robot_rl.refiner import Refiner
from tests.policies.tools import flow_policy
from tests.robot_rl.scripted import CountingEnv, RampPolicy
from tests.robot_rl.test_control import ENDLESS, TakesOverAtStep

AWAY = -1
"""Instead of a number of control steps: the policy is away when the chunk should be taken."""


class Late:
    """A robot's planner whose chunks take the given numbers of control steps."""

    waits = False

    def __init__(self, takes, expected=1):
        self.takes, self.expected, self.running = list(takes), expected, None

    def delay(self):
        return self.expected

    def busy(self):
        return self.running is not None

    def ask(self, compute, step, delay):
        self.running = self
        takes = self.takes.pop(0)
        self.planned = compute(delay) if takes != AWAY else None
        self.due = step + (0 if takes == AWAY else takes)
        return self

    def wait(self):
        self.due = 0
        return self.take(0)

    def take(self, step):
        if step < self.due:
            return None
        self.running = None
        if self.planned is None:
            raise PolicyAwayError("no server", "the policy's server is away: gone")
        return self.planned


def run(takes, expected=1, *, horizon=8, executed=3, arbiters=None, policy=None):
    policy = policy or RampPolicy(horizon=horizon, executed=executed)
    loop = ControlLoop([CountingEnv()], policy, planner=Late(takes, expected), arbiters=arbiters)
    (episode,) = loop.run([0], options=ENDLESS)
    return episode, policy


def test_a_chunk_is_joined_where_the_robot_is_however_long_it_took():
    """LeRobot 0.6.1 skips as many actions as the latency says, executed or not (#4223, #4454)."""
    episode, policy = run([0, 2, 1, 4, 9], expected=2)
    # Each is asked for 3 - 2 steps after the last began to act, at 1, 4 and 6, and ready at 3, 5 and 10.
    assert episode.chunk_id.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2, 2]
    assert episode.chunk_index.tolist() == [0, 1, 2, 2, 3, 1, 2, 3, 4, 5]
    assert [(c.first_step, c.delay) for c in episode.chunks] == [(0, 0), (1, 2), (4, 1), (6, 4)]
    assert [call.consumed.tolist() for call in policy.calls][1:4] == [[1], [3], [2]]


def test_a_chunk_one_step_later_than_expected_goes_on_with_the_old_one():
    episode, _ = run([0, 3, 9, 9], expected=2)
    assert episode.chunk_id[:5].tolist() == [0, 0, 0, 0, 1]
    assert episode.chunk_index[:5].tolist() == [0, 1, 2, 3, 3]
    assert set(episode.source[:5].tolist()) == {"policy"}


def test_without_a_chunk_the_robot_holds_still_and_says_why():
    said = []

    class Listens(LimitArbiter):
        def resolve(self, proposal, stamp):
            said.append(super().resolve(proposal, stamp).because)
            return super().resolve(proposal, stamp)

    listens = Listens(RampPolicy().spec.action_spec)
    episode, _ = run([0, 6, 9], horizon=4, executed=3, arbiters=[listens])
    assert episode.chunk_id[:8].tolist() == [0, 0, 0, 0, -1, -1, -1, -1]
    assert episode.source[3:6].tolist() == ["policy", "paused", "paused"]
    np.testing.assert_array_equal(episode.action[4:8], 0.0)  # deltas: nothing moves
    np.testing.assert_array_equal(episode.action_base[4:8], 0.0)
    assert said[:6] == ["", "", "", "", "no chunk is ready", "no chunk is ready"]


class Listens(LimitArbiter):
    """Remembers why steps were not the policy's."""

    def __init__(self):
        super().__init__(RampPolicy().spec.action_spec)
        self.said = []

    def resolve(self, proposal, stamp):
        executed = super().resolve(proposal, stamp)
        self.said.append(executed.because)
        return executed


def test_a_policy_that_is_away_makes_the_robot_hold_and_go_on_with_a_fresh_observation():
    listens = Listens()
    episode, policy = run([0, *[AWAY] * 7, 1, *[0] * 9], horizon=4, executed=3, arbiters=[listens])
    # The old chunk is executed to its end; then the robot holds, and is asked for anew in each step.
    assert episode.source.tolist()[:4] == ["policy"] * 4
    held = [step for step, source in enumerate(episode.source) if source == "paused"]
    assert held[0] == 4
    assert {listens.said[step] for step in held} == {"the policy's server is away: gone"}
    assert [(note.kind, note.because) for note in episode.events] == [
        ("note", "the policy's server is away: gone")
    ]
    np.testing.assert_array_equal(episode.action[held], 0.0)
    back = held[-1] + 1
    assert episode.source[back] == "policy"
    assert listens.said[back] == ""
    chunk = episode.chunks[1]
    assert (chunk.id, chunk.first_step, chunk.delay) == (episode.chunk_id[back], back - 1, 1)
    seen = policy.calls[1].observation["observation.state"][0, 0]
    np.testing.assert_allclose(seen, episode.observations["observation.state"][back - 1])


def test_a_policy_that_is_away_before_anything_moves_is_an_error():
    """There is no last target to hold yet."""
    with pytest.raises(PolicyAwayError):
        run([AWAY])


def test_in_simulated_time_a_policy_that_is_away_is_an_error():
    class Away(RampPolicy):
        def chunk(self, request, noise=None, condition=None):
            if self.calls:
                raise PolicyAwayError("no server", "gone")
            return super().chunk(request, noise, condition)

    with pytest.raises(PolicyAwayError, match="no server"):
        ControlLoop([CountingEnv()], Away()).run([0], options=ENDLESS)


def test_what_failed_does_not_count_as_a_delay():
    def away(delay):
        raise PolicyAwayError("no server", "gone")

    with BackgroundPlanner(50.0) as planner:
        ticket = planner.ask(away, step=4, delay=1)
        with pytest.raises(PolicyAwayError):
            ticket.wait()
        with pytest.raises(PolicyAwayError):
            ticket.take(90)
        assert planner.delay() == 1
        assert not planner.busy()


def test_after_a_takeover_the_robot_holds_until_there_is_a_fresh_chunk():
    episode, policy = run([0, 4, 2, 9], horizon=9, executed=6, arbiters=[TakesOverAtStep()], expected=5)
    # Asked at 1 and done at 5, it is never used; asked anew at 5 from the state of then, ready at 7.
    expected = ["policy", "policy", "human", "human", "paused", "paused", "paused", "policy"]
    assert episode.source[:8].tolist() == expected
    assert [(chunk.first_step, chunk.delay) for chunk in episode.chunks][:2] == [(0, 0), (5, 2)]
    seen = policy.calls[2].observation["observation.state"][0, 0]
    np.testing.assert_allclose(seen, episode.observations["observation.state"][5])


def test_the_expected_delay_forgets_the_first_chunk_and_old_ones():
    """LeRobot 0.6.1 keeps the greatest delay for ever, that of the first call above all (#4223, #2541)."""
    with BackgroundPlanner(50.0, window=2) as planner:
        assert planner.delay() == 1
        planner.waited(0.5)
        assert planner.delay() == 25
        for steps, expected in ((3, 3), (5, 5), (2, 5), (1, 2)):
            planner.measured(steps)
            assert planner.delay() == expected


def test_the_background_thread_computes_one_chunk_at_a_time_and_closes():
    go = threading.Event()

    def compute(delay):
        assert go.wait(10)
        return delay

    with BackgroundPlanner(50.0) as planner:
        ticket = planner.ask(compute, step=4, delay=6)
        assert planner.busy()
        assert ticket.take(5) is None
        with pytest.raises(RuntimeError, match="A chunk is being computed"):
            planner.ask(compute, step=5, delay=6)
        go.set()
        assert ticket.wait() == 6
        assert not planner.busy()
        later = planner.ask(compute, step=8, delay=2)
        while (taken := later.take(11)) is None:
            pass
        assert (taken, planner.delay()) == (2, 3)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("chunks")]
    with pytest.raises(ValueError, match="rate_hz 0"):
        BackgroundPlanner(0.0)


def test_an_error_in_the_thread_reaches_the_loop():
    class Fails(RampPolicy):
        def chunk(self, request, noise=None, condition=None):
            raise ValueError("no such sensor")

    with BackgroundPlanner(10.0) as planner, pytest.raises(ValueError, match="no such sensor"):
        ControlLoop([CountingEnv()], Fails(), planner=planner).run([0])


def test_in_real_time_a_slow_policy_joins_its_own_chunks():
    """A whole episode with the thread; what is executed before the join is what the old chunk said."""
    with BackgroundPlanner(10.0) as planner:
        loop = ControlLoop([CountingEnv()], RampPolicy(horizon=8, executed=3), planner=planner)
        (episode,) = loop.run([0], options=ENDLESS)
    assert episode.chunk_id[0] == 0  # nothing moved before the first chunk
    for row in np.flatnonzero(episode.chunk_id >= 0):
        chunk = next(c for c in episode.chunks if c.id == episode.chunk_id[row])
        assert episode.chunk_index[row] == row - chunk.first_step
        np.testing.assert_array_equal(episode.action_base[row], chunk.actions[episode.chunk_index[row]])


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_with_real_time_chunking_the_first_new_action_follows_the_old_chunk(delay):
    """The prefix is joined in the policy's own space, by consumed steps."""
    from tests.policies.tools import FEATURES, SPEC

    class Env(CountingEnv):
        features = FEATURES
        action_spec = SPEC

        def _observe(self):
            rng = np.random.default_rng(self.steps)
            return {
                key: rng.normal(size=f.shape).astype(np.float32)
                if f.dtype == "float32"
                else rng.integers(0, 255, f.shape).astype(np.uint8)
                for key, f in FEATURES.items()
            }

        def step(self, action):
            self.steps += 1
            return self._observe(), 0.0, False, self.steps >= 10, {"success": False}

    policy = flow_policy(horizon=8, executed_steps=3)
    refiner = Refiner(hooks=(RealTimeChunking(),))
    (episode,) = ControlLoop([Env()], policy, refiner, LoopConfig(delay=delay)).run([0])
    for old, new in zip(episode.chunks, episode.chunks[1:], strict=False):
        passed = new.first_step - old.first_step
        np.testing.assert_allclose(new.actions[:delay], old.actions[passed : passed + delay], atol=1e-6)


def test_the_time_of_the_first_chunk_is_no_missed_step():
    """Nothing moves before it; the pace begins with the first step."""
    clock = SimulatedClock()

    class SlowAtFirst(RampPolicy):
        def chunk(self, request, noise=None, condition=None):
            if not self.calls:
                clock.sleep_until(0.5)
            return super().chunk(request, noise, condition)

    (episode,) = ControlLoop([CountingEnv()], SlowAtFirst(), clock=clock).run([0], options=ENDLESS)
    assert "missed_ticks" not in episode.metadata
    assert np.diff(episode.monotonic_time)[1:] == pytest.approx(0.1)
