"""A student in a refiner: it acts in the base's place, and is saved and found again with it."""

import numpy as np
import pytest
import torch

import sim
from policies.checkpoint import load
from robot_rl.control import run_wave
from robot_rl.parts import load_refiner, save_refiner
from robot_rl.refiner import Refiner
from robot_rl.student import Student
from tests.robot_rl.scripted import RampPolicy
from tests.robot_rl.toy import TOY, save_toy_policy


@pytest.fixture
def base(tmp_path):
    return load(save_toy_policy(tmp_path / "base"))


def test_an_untrained_student_repeats_the_base_to_the_bit(base, tmp_path) -> None:
    refiner = Refiner(student=Student(base.student("copy")), base_hash=base.hash())
    save_refiner(tmp_path / "refiner", refiner)
    loaded = load_refiner(tmp_path / "refiner")
    envs = [sim.make(TOY) for _ in range(3)]
    for one, other in zip(
        run_wave(envs, [1, 2, 3], base), run_wave(envs, [1, 2, 3], base, loaded), strict=True
    ):
        np.testing.assert_array_equal(one.action, other.action)
        assert other.base_version == base.hash()
        assert other.refiner_version == loaded.version


def test_a_trained_student_acts_and_the_base_stays(base, tmp_path) -> None:
    student, before = base.student("copy"), base.hash()
    with torch.no_grad():
        student.network.write.bias.add_(0.5)
    save_refiner(tmp_path, Refiner(student=Student(student)))
    loaded = load_refiner(tmp_path)
    (episode,) = run_wave([sim.make(TOY)], [1], base, loaded)
    (alone,) = run_wave([sim.make(TOY)], [1], student)
    np.testing.assert_array_equal(episode.action, alone.action)
    assert base.hash() == before
    assert not any(parameter.requires_grad for parameter in loaded.student.policy.parameters())


def test_a_student_of_another_shape_or_that_cannot_be_saved_is_refused(base) -> None:
    with pytest.raises(TypeError, match="cannot be saved"):
        Student(RampPolicy())
    with pytest.raises(ValueError, match="another executed_steps than the base"):
        Student(base).in_place_of(RampPolicy())
