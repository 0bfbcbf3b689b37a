"""The learner's process: fixed rounds, exact state, and errors that reach the caller."""

import functools
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from data.records import Episode
from data.store import EpisodeStore
from robot_rl.control import run_wave
from robot_rl.learn.learner import Learner
from robot_rl.learn.process import LearnerDied, LearnerProcess
from tests.robot_rl.scripted import CountingEnv, RampPolicy


class CountingLearner(Learner):
    """Counts the steps it was given and the updates it did; fails on the update it is told to fail on."""

    def __init__(self, fails_at: int = -1) -> None:
        self.steps, self.updates, self.fails_at = 0, 0, fails_at

    def add(self, episodes: Sequence[Episode]) -> None:
        self.steps += sum(map(len, episodes))

    def update(self, count: int) -> Mapping[str, float]:
        self.updates += count
        if self.updates >= self.fails_at > 0:
            raise ValueError("no more of this")
        return {"updates": self.updates}

    def snapshot(self) -> dict[str, torch.Tensor]:
        return {"seen": torch.tensor([self.steps, self.updates])}

    def state(self) -> dict[str, torch.Tensor]:
        return {"updates": torch.tensor(self.updates)}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self.updates = int(state["updates"])


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    store = EpisodeStore(tmp_path)
    for episode in run_wave([CountingEnv(), CountingEnv()], [5, 6], RampPolicy()):
        store.write(episode)
    return store


def test_rounds_take_episodes_in_and_hand_weights_and_state_out(store: EpisodeStore) -> None:
    first, second = store.ids()
    lengths = [len(store.read(name)) for name in (first, second)]
    with LearnerProcess(
        CountingLearner, store.path, episodes=[first], state={"updates": torch.tensor(40)}
    ) as learner:
        learner.begin([second], 3, with_state=True)
        with pytest.raises(RuntimeError, match="collect it before"):
            learner.begin([], 1)
        found = learner.collect()
    assert found.weights["seen"].tolist() == [sum(lengths), 43]
    assert found.metrics == {"updates": 43}
    assert int(found.state["updates"]) == 43
    assert not multiprocessing.active_children()


def test_a_failure_of_the_learner_is_told_with_its_reason(store: EpisodeStore) -> None:
    with LearnerProcess(functools.partial(CountingLearner, fails_at=2), store.path) as learner:
        learner.begin([], 2)
        with pytest.raises(RuntimeError, match="ValueError: no more of this"):
            learner.collect()


def _round(learner: LearnerProcess) -> None:
    learner.begin([], 1)
    learner.collect()


def test_a_killed_learner_is_noticed_and_the_remedy_named(store: EpisodeStore) -> None:
    with LearnerProcess(CountingLearner, store.path) as learner:
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        with pytest.raises(LearnerDied, match="ended with code -9; resume the run"):
            _round(learner)


class DiesSendingLearner(CountingLearner):
    """Is killed while its weights, too many for the pipe, wait for the caller."""

    def snapshot(self) -> dict[str, torch.Tensor]:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        return {"weights": torch.zeros(1_000_000)}


def test_a_learner_killed_in_the_middle_of_a_message_is_noticed(store: EpisodeStore) -> None:
    with LearnerProcess(DiesSendingLearner, store.path) as learner:
        learner.begin([], 1)
        multiprocessing.active_children()[0].join()
        with pytest.raises(LearnerDied, match="ended with code -14; resume the run"):
            learner.collect()


def test_a_learner_that_fails_before_its_first_round_tells_its_reason(store: EpisodeStore) -> None:
    with LearnerProcess(CountingLearner, store.path, episodes=["unknown"]) as learner:
        multiprocessing.active_children()[0].join()
        with pytest.raises(RuntimeError, match="The learner failed: KeyError"):
            _round(learner)
