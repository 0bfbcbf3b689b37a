import numpy as np

from robot_rl.learn.spread import mean_and_spread


def test_a_dimension_that_hardly_moved_has_a_floor():
    rows = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0]])
    mean, spread = mean_and_spread(rows)
    assert mean.tolist() == [2.0, 5.0, 0.0]
    assert spread.tolist() == [1.0, 0.005, 1e-6]
