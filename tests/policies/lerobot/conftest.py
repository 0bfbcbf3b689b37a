"""Fixtures shared by the tests of policies from LeRobot."""

from __future__ import annotations

import huggingface_hub.constants
import pytest


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name on the hub that no local folder stands for fails at once, not after retries."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
