import os
import subprocess
import sys
from pathlib import Path

import pytest

from data.memory import available_memory


def test_what_can_be_had_is_less_than_there_is_and_is_asked_without_numpy():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_memory() <= total
    program = (
        "import sys, data.memory; assert 'numpy' not in sys.modules; assert data.memory.available_memory()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("content", ["MemTotal: 5 kB\n", "MemAvailable:\n", None])
def test_free_pages_are_counted_where_the_kernel_does_not_say(monkeypatch, tmp_path, content):
    file = tmp_path / "meminfo"
    if content is not None:
        file.write_text(content)
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda path: opened(file) if path.name == "meminfo" else opened(path))
    monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}.get)
    assert available_memory() == 3 * 4096
