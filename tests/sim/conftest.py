"""What the simulation tests share."""

import subprocess
import sys

import pytest

# In a process of its own: a GL backend that fails complains again when it is collected, during another test.
_PROBE = """
import mujoco
mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8).render()
"""


@pytest.fixture(scope="session")
def rendering() -> None:
    """Skips a test that takes pictures where MuJoCo cannot draw off screen."""
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False
    )
    if probe.returncode != 0:
        reason = probe.stderr.strip().splitlines()[-1:]
        pytest.skip(f"no off-screen rendering here; set MUJOCO_GL to egl or osmesa ({reason})")
