import numpy as np
import pytest
import torch

from robot_rl.task_texts import TaskTexts

RED, BLUE = "put the can into the red bin", "put the can into the blue bin"
BOTH = TaskTexts.of([RED, BLUE, RED], reads_task=True)


def test_texts_are_kept_once_in_their_order():
    assert BOTH == TaskTexts((BLUE, RED)) == TaskTexts.of([BLUE, RED], reads_task=False)
    assert BOTH.keys == ("task",)


def test_a_task_is_a_one_among_zeros():
    np.testing.assert_array_equal(BOTH.numbers([RED, BLUE, RED]), [1, 0, 1])
    np.testing.assert_array_equal(BOTH.one_hot([RED, BLUE]), [[0, 1], [1, 0]])
    assert BOTH.one_hot([RED]).dtype == np.float32


def test_case_and_punctuation_make_no_other_task():
    assert TaskTexts.of([RED, "Put the can into the red bin."], reads_task=True).size == 0
    assert BOTH.numbers(["Put the can into the RED bin!"]).tolist() == [1]


def test_an_unknown_text_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'go home' is none of those .*blue bin', .*red bin'\. Tell one"):
        BOTH.one_hot([RED, "go home"])


def test_one_text_takes_no_room_and_another_one_is_said_once(caplog):
    one = TaskTexts.of([RED, RED], reads_task=True)
    assert (one.size, one.count, one.keys) == (0, 1, ("task",))
    assert one.one_hot([RED, BLUE]).shape == (2, 0)
    assert one.numbers([BLUE]).tolist() == [0]
    assert caplog.text.count("but the refiner knows 'put the can into the red bin' only") == 1


def test_a_policy_that_reads_no_text_has_nothing_to_tell_apart_in_one():
    none = TaskTexts.of([RED], reads_task=False)
    assert none == TaskTexts()
    assert (none.size, none.count, none.keys) == (0, 1, ())
    assert none.one_hot([RED, BLUE]).shape == (2, 0)


def test_texts_are_read_of_an_observation():
    rows = torch.zeros(2, 1, 3)
    assert BOTH.read({"observation.state": rows, "task": [RED, BLUE]}) == [RED, BLUE]
    assert TaskTexts().read({"observation.state": rows}) == ["", ""]
    with pytest.raises(ValueError, match="lacks the task's text"):
        BOTH.read({"observation.state": rows})
