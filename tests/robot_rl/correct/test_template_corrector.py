"""The template of a corrector, and the tests that a copy of it wants to keep."""

from __future__ import annotations

import numpy as np
import pytest

from robot_rl.correct.corrector import CorrectorInput
from robot_rl.correct.history import History
from robot_rl.correct.template_corrector import LinearCorrector
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner

WRENCH = "observation.wrench"


def request(rows=3, seed=0):
    rng = np.random.default_rng(seed)
    return CorrectorInput(
        observation={WRENCH: rng.normal(size=(rows, 6)).astype(np.float32)},
        base_chunk=rng.normal(size=(rows, 8, 2)).astype(np.float32),
        index=np.arange(rows),
        history=History((), 0, 2),
        deterministic=True,
        generators=tuple(np.random.default_rng(row) for row in range(rows)),
    )


def pushing(weights=None):
    return LinearCorrector(WRENCH, np.full((2, 6), 0.3) if weights is None else weights, (0.01, 0.02))


def test_untrained_it_returns_the_base_action_to_the_bit():
    asked = request()
    found = pushing(np.zeros((2, 6))).correct(asked)
    assert found.action.tobytes() == asked.base_action.tobytes()


def test_a_gain_of_zero_returns_the_base_action_to_the_bit():
    asked = request()
    assert pushing().correct(asked, gain=0.0).action.tobytes() == asked.base_action.tobytes()


def test_the_correction_by_hand():
    asked = request(rows=1)
    asked.observation[WRENCH][:] = [[1, 0, 0, 0, 0, 0]]
    weights = np.zeros((2, 6))
    weights[1, 0] = -0.5
    added = pushing(weights).correct(asked, gain=0.5).action - asked.base_action
    np.testing.assert_allclose(added, [[0, 0.5 * 0.02 * np.tanh(-0.5)]], atol=1e-12)


def test_the_correction_is_bounded():
    added = pushing(np.full((2, 6), 1e6)).correct(request()).action - request().base_action
    assert (np.abs(added) <= np.array([0.01, 0.02]) * (1 + 1e-6)).all()


def test_a_row_does_not_depend_on_its_neighbours():
    asked = request()
    whole = pushing().correct(asked).action
    for row in range(3):
        alone = CorrectorInput(
            {WRENCH: asked.observation[WRENCH][row : row + 1]},
            asked.base_chunk[row : row + 1],
            asked.index[row : row + 1],
            asked.history,
            deterministic=True,
            generators=asked.generators[row : row + 1],
        )
        assert pushing().correct(alone).action.tobytes() == whole[row : row + 1].tobytes()


def test_a_missing_sensor_is_named():
    asked = request()
    del asked.observation[WRENCH]
    with pytest.raises(
        ValueError, match=rf"The corrector reads \['{WRENCH}'\], which the robot does not give"
    ):
        pushing().correct(asked)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not belong together"):
        LinearCorrector(WRENCH, np.zeros((2, 6)), (0.01,))


def test_saved_and_loaded_it_corrects_alike(tmp_path):
    save_refiner(tmp_path, Refiner(correct=pushing()))
    loaded = load_refiner(tmp_path).correct
    assert loaded.correct(request()).action.tobytes() == pushing().correct(request()).action.tobytes()
