import numpy as np
import pytest

from data.records import EpisodeBuilder, Step
from data.steps_view import at_steps


def episode(first_sample):
    builder = EpisodeBuilder(id="e", task="t")
    builder.start({"observation.state": np.zeros(1)})
    for i in range(20):
        moment = first_sample + 0.3 * i
        builder.stream("observation.wrench", moment, 1e9 + moment, np.array([moment, 2 * moment]))
    for t in range(4):
        step = Step(action=np.zeros(1), wall_time=1e9, monotonic_time=1.0 + t)
        builder.append(step, {"observation.state": np.zeros(1)})
    return builder.finish()


def test_every_step_sees_the_newest_sample_that_was_there():
    found = at_steps(episode(0.5))["observation.wrench"]
    np.testing.assert_allclose(found[:, 0], [0.8, 2.0, 2.9, 3.8])
    np.testing.assert_allclose(found[:, 1], [1.6, 4.0, 5.8, 7.6])


def test_a_step_before_the_first_sample_is_named():
    with pytest.raises(ValueError, match=r"'observation.wrench' had no sample yet at 1 of 4 .*1\.2"):
        at_steps(episode(1.2))


def test_an_unknown_stream_is_named():
    with pytest.raises(KeyError, match=r"did you mean 'observation\.wrench'"):
        at_steps(episode(0.5), ["observation.wrnch"])
    assert at_steps(episode(0.5), []) == {}
