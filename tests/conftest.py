"""What every test shares: one thread per process, the devices present, real recordings, and no network."""

from __future__ import annotations

import os

# Set before anything imports torch: spinning OpenMP threads make small networks very slow on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

import ipaddress
import socket
from pathlib import Path

import hypothesis
import pytest

import sim  # noqa: F401 - before mujoco: it chooses the library that MuJoCo draws with

REPOSITORY = Path(__file__).resolve().parent.parent

# The same examples on every run, and no deadline on a machine that others use too.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")


def devices() -> list[str]:
    """Name the torch devices of this machine, the CPU first."""
    import torch

    torch.set_num_threads(1)
    present = ["cpu"]
    if torch.cuda.is_available():
        present.append("cuda")
    if torch.backends.mps.is_available():
        present.append("mps")
    return present


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `device` once on every device present; torch is imported only for such tests."""
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices())


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real recordings by others; the test is skipped where it is absent."""
    named = os.environ.get("ROBOT_RL_REAL_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "real"
    if not folder.is_dir():
        pytest.skip(f"no real recordings at {folder}; set ROBOT_RL_REAL_DATA to their folder")
    return folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test that reaches for another machine fail, whatever the machine it runs on may reach."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_this_machine(address):
            raise OSError(f"tests must not use the network, but one connects to {address}")
        connect(self, address)  # type: ignore[arg-type]  # the address has the form that the family asks for

    monkeypatch.setattr(socket.socket, "connect", connect_here)


def _is_this_machine(address: object) -> bool:
    host = address[0] if isinstance(address, tuple) else ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
