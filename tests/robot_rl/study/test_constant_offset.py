import numpy as np
import pytest

from robot_rl.correct.corrector import CorrectorInput
from robot_rl.correct.history import History
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from robot_rl.study.constant_offset import ConstantOffset


def request():
    chunk = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    return CorrectorInput({}, chunk, np.array([0, 2]), History((), 0, 2), deterministic=True, generators=())


def test_it_adds_the_same_to_every_row():
    np.testing.assert_array_equal(
        ConstantOffset((0.5, -1.0)).correct(request()).action, [[0.5, 0.0], [10.5, 10.0]]
    )


def test_gain_scales_it_and_zero_returns_the_base_action_to_the_bit():
    offset = ConstantOffset((0.5, -1.0))
    np.testing.assert_array_equal(offset.correct(request(), gain=0.5).action[0], [0.25, 0.5])
    assert offset.correct(request(), gain=0.0).action.tobytes() == request().base_action.tobytes()


def test_what_cannot_be_added_is_refused():
    with pytest.raises(ValueError, match="one finite number"):
        ConstantOffset((0.5, np.nan))
    with pytest.raises(ValueError, match="3 dimensions, the base's actions 2"):
        ConstantOffset((0.0, 0.0, 0.0)).correct(request())


def test_saved_and_loaded_it_adds_alike(tmp_path):
    save_refiner(tmp_path, Refiner(correct=ConstantOffset((0.5, -1.0))))
    np.testing.assert_array_equal(load_refiner(tmp_path).correct.offset, [0.5, -1.0])
