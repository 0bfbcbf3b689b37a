"""Where a result comes from: library versions, git revision and the hash of a configuration."""

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("robot-rl", "torch", "mujoco", "mink", "gymnasium", "numpy", "scipy", "zarr")

# Where a run lies, how it is started and how it is shown: none of these changes what it computes.
NEUTRAL_FIELDS = frozenset(
    {"out", "json", "resume", "replace", "workers", "wandb", "debug", "minutes", "record_to", "video"}
)


def versions() -> dict[str, str]:
    """Versions of Python, the platform and the libraries a result depends on; imports none of them."""
    found = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "source tree" if name == "robot-rl" else "not installed"
    return found


@cache
def git_revision() -> str | None:
    """The commit of the checkout this package is imported from, with ``+changes`` if files differ from it.

    Returns:
        None when the package is not imported from a git checkout of its own, or git is missing.
    """
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():  # an installed copy may lie inside another project
        return None
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603 - fixed arguments
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def config_hash(config: Mapping[str, Any]) -> str:
    """First 16 hex digits of a configuration's SHA-256, independent of key order and ``NEUTRAL_FIELDS``.

    Args:
        config: a configuration as plain JSON values (``data.config.to_dict``).
    """
    kept = {name: value for name, value in config.items() if name not in NEUTRAL_FIELDS}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def config_differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Describe in words the fields in which two configurations differ, ``NEUTRAL_FIELDS`` left out.

    Returns:
        One line per field, for example ``learner.width: 128 there, 256 now``.
    """
    lines = []
    for name in sorted(set(old) | set(new)):
        if not prefix and name in NEUTRAL_FIELDS:
            continue
        before, now = old.get(name, "absent"), new.get(name, "absent")
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            lines += config_differences(before, now, f"{prefix}{name}.")
        elif before != now:
            lines.append(f"{prefix}{name}: {before} there, {now} now")
    return lines
