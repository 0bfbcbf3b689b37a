"""What works on this machine, what is missing, and how to get it."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from data.memory import available_memory
from robot_rl.parallel import cores

REQUIRED = ("torch", "mujoco", "mink", "gymnasium", "zarr", "av", "scipy", "statsmodels", "tensorboard")
EXTRAS = {
    "rerun": ("rerun-sdk", "view", "robot-rl view"),
    "lerobot": ("lerobot", "lerobot", "the tests that read data sets with LeRobot itself"),
    "gym_pusht": ("gym-pusht", "pusht", "the task pusht"),
    "robosuite": ("robosuite", "robosuite", "the task robosuite-can"),
    "wandb": ("wandb", "wandb", "logging to Weights & Biases"),
}
_RENDER = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 16, 16).render()"
_DEVICES = """
import torch
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(", ".join(["cpu", *names, *(["mps"] if torch.backends.mps.is_available() else [])]))
"""


class Status(StrEnum):
    """Result of one check."""

    OK = "ok"
    OPTIONAL = "optional"
    """missing, and only some commands need it"""
    MISSING = "missing"
    """missing, and the main job needs it"""
    DIFFERS = "differs"
    """of a policy: it does not fit the robot or the recordings"""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table."""

    what: str
    status: Status
    detail: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Run every check, one after the other; none of them changes anything."""
    yield from (check() for check in (_python, _cores, _memory, _disk))
    yield from (_package(name) for name in REQUIRED)
    yield from (check() for check in (_devices, _rendering, _video))
    yield from (_extra(module) for module in EXTRAS)


def healthy(findings: list[Finding]) -> bool:
    """Whether the main job can run."""
    return all(finding.status is not Status.MISSING for finding in findings)


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info[:2] == (3, 12):
        return Finding("python", Status.OK, found)
    return Finding("python", Status.MISSING, found, "use Python 3.12: make setup brings one")


def _cores() -> Finding:
    count = cores()
    remedy = "" if count >= 2 else "the demo is made for two cores and takes about twice as long here"
    return Finding("cpu cores", Status.OK if count >= 2 else Status.OPTIONAL, str(count), remedy)


def _memory() -> Finding:
    try:
        free = available_memory() / 2**30
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (ValueError, OSError):
        return Finding("memory", Status.OPTIONAL, "unknown", "the demo needs 3 GiB")
    if total >= 3:
        return Finding("memory", Status.OK, f"{total:.0f} GiB, {free:.1f} available")
    return Finding("memory", Status.MISSING, f"{total:.1f} GiB", "the demo needs 3 GiB")


def _disk() -> Finding:
    free = shutil.disk_usage(".").free / 2**30
    if free >= 1:
        return Finding("disk", Status.OK, f"{free:.0f} GiB free here")
    return Finding(
        "disk", Status.MISSING, f"{free:.2f} GiB free here", "the demo writes up to 1 GiB to outputs/"
    )


def _package(name: str) -> Finding:
    try:
        return Finding(name, Status.OK, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, Status.MISSING, "not installed", "make setup")


def _devices() -> Finding:
    return _probe("torch devices", _DEVICES, "reinstall torch: make setup", Status.MISSING)


def _rendering() -> Finding:
    for backend in dict.fromkeys((os.environ.get("MUJOCO_GL", ""), "egl", "osmesa")):
        found = _probe("rendering", _RENDER, "", Status.OPTIONAL, MUJOCO_GL=backend)
        if found.status is Status.OK:
            return Finding("rendering", Status.OK, f"MUJOCO_GL={backend or 'default'}")
    remedy = "for camera images and videos: apt-get install libegl1 libgl1-mesa-dri libosmesa6"
    return Finding("rendering", Status.OPTIONAL, "neither EGL nor OSMesa works", remedy)


def _video() -> Finding:
    if importlib.util.find_spec("av") is None:
        return Finding("video", Status.MISSING, "PyAV is missing", "make setup")
    from robot_rl.report.video import encoder

    try:
        return Finding("video", Status.OK, f"PyAV encodes {encoder()}")
    except RuntimeError as error:
        return Finding("video", Status.OPTIONAL, "no encoder", str(error))


def _extra(module: str) -> Finding:
    distribution, extra, purpose = EXTRAS[module]
    if importlib.util.find_spec(module) is not None:
        return Finding(module, Status.OK, importlib.metadata.version(distribution))
    return Finding(module, Status.OPTIONAL, "not installed", f"for {purpose}: uv pip install -e '.[{extra}]'")


def _probe(what: str, code: str, remedy: str, otherwise: Status, **environment: str) -> Finding:
    """Run a line of Python in a process of its own: a broken GL library or driver may kill it."""
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    try:
        done = run(
            [sys.executable, "-c", code],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(what, otherwise, "no answer within 120 s", remedy)
    if done.returncode == 0:
        return Finding(what, Status.OK, done.stdout.strip())
    last = (done.stderr.strip().splitlines() or ["it was killed"])[-1]
    return Finding(what, otherwise, last[:120], remedy)
