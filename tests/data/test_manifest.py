import json
import os
from pathlib import Path

import pytest

from data.manifest import (
    atomic_write_bytes,
    atomic_write_json,
    atomic_write_text,
    check_writable,
    file_manifest,
    sha256_bytes,
    sha256_file,
)


def test_checksums_are_the_published_ones(tmp_path):
    assert sha256_bytes(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    (tmp_path / "f").write_bytes(b"abc")
    assert sha256_file(tmp_path / "f") == sha256_bytes(b"abc")


def test_writing_replaces_and_leaves_nothing_else(tmp_path):
    atomic_write_text(tmp_path / "a.txt", "one")
    atomic_write_text(tmp_path / "a.txt", "zwölf")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "zwölf"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_write_keeps_the_old_file(tmp_path):
    atomic_write_json(tmp_path / "a.json", {"x": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        atomic_write_json(tmp_path / "a.json", {"x": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}
    with pytest.raises(OSError, match="No such file"):
        atomic_write_text(tmp_path / "missing" / "a", "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_manifest_lists_every_file_below(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c").write_bytes(b"abc")
    (tmp_path / "a").write_bytes(b"")
    found = file_manifest(tmp_path)
    assert list(found) == ["a", "b/c"]
    assert found["b/c"] == {"bytes": 3, "sha256": sha256_bytes(b"abc")}


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="pipe is a device, which no file may replace: give a file"):
        atomic_write_bytes(pipe, b"x")
    assert pipe.is_fifo()
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


def test_a_place_for_no_file_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    for place, why in ((tmp_path, "is a folder"), (Path("/dev/null"), "is a device")):
        with pytest.raises(ValueError, match=f"out is {place}, which {why}: give a file"):
            check_writable(place, "out")
    with pytest.raises(ValueError, match=r"out is .*, but .*file cannot be made .*: give a file elsewhere"):
        check_writable(tmp_path / "file" / "page.html", "out")
    check_writable(tmp_path / "new" / "page.html", "out")
    assert (tmp_path / "new").is_dir()
