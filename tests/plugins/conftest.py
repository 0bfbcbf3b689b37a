"""A refined policy of the toy task, exported as LeRobot reads it."""

from __future__ import annotations

import pytest

from policies.loading import load
from robot_rl.correct.template_corrector import LinearCorrector
from robot_rl.export import ExportConfig, export
from robot_rl.parts import save_refiner
from robot_rl.refiner import Refiner
from tests.robot_rl.toy import save_toy_policy


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_toy_policy(tmp_path_factory.mktemp("toy") / "base")


@pytest.fixture(scope="module")
def corrected(base):
    """A folder with a refiner that corrects."""
    corrector = LinearCorrector("observation.state", [[0.5, 0.0], [0.0, 0.5]], [0.1, 0.1])
    folder = base.parent / "corrector"
    save_refiner(folder, Refiner(correct=corrector, base_hash=load(base).hash()))
    return folder


@pytest.fixture
def exported(base, corrected, tmp_path):
    return export(ExportConfig(policy=base, refiner=(corrected,), out=tmp_path / "exported", seed=5))
