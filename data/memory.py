"""How much memory can be had; the standard library alone, so that `robot-rl doctor` can ask it first."""

import os
from pathlib import Path


def available_memory() -> int:
    """Bytes that can be had without swapping: what the kernel keeps of files counts, unlike in free pages."""
    try:
        with Path("/proc/meminfo").open() as file:
            found = next(line.split()[1] for line in file if line.startswith("MemAvailable:"))
        return int(found) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
