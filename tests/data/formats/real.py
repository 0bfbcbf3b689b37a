"""Recordings that nobody here made; they are not part of the repository."""

import os
from pathlib import Path

import pytest

REAL = Path(os.environ.get("ROBOT_RL_REAL_DATA", Path(__file__).resolve().parents[4] / "shared/real"))


def needs(place):
    """Skips a test where the recording is not there."""
    return pytest.mark.skipif(not (REAL / place).exists(), reason=f"needs {place} of ../shared/real")
