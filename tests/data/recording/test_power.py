"""What `durable=True` promises when the power fails: judged by a disk that keeps no more than it must.

A file is there as it was when it was last synchronised, a folder with the names that it had then. Renaming
and removing may reach the disk at once or not at all, as a file system likes.
"""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from data.recording.unfinished import Recording
from data.store import EpisodeStore
from tests.data.episodes import episode, fill

PLACE = "deep/er/store"


class Disk:
    """Follows what is synchronised, renamed and removed below a folder, and shows what a failure would leave.

    Args:
        root: The folder; it is on the disk already.
        renames: Whether a rename reaches the disk at once.
        removals: Whether a removal does.
    """

    def __init__(self, root, renames, removals):
        self.root, self.renames, self.removals = root, renames, removals
        self.files, self.folders, self.handles = {}, {}, []
        self.watch = self.ignore = lambda: None

    def patch(self, monkeypatch):
        monkeypatch.setattr(os, "fsync", self._synchronised)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._moving(getattr(os, name)))
        for name in ("unlink", "rmdir"):
            monkeypatch.setattr(os, name, self._removing(getattr(os, name)))

    def _synchronised(self, handle):
        known = self.files.get(os.fstat(handle).st_ino)
        self._keep(handle)  # and not more: a real disk would take its time
        if known or stat.S_ISDIR(os.fstat(handle).st_mode):  # else nothing is lost by it
            self.watch()

    def _moving(self, move):
        def moved(source, target):
            number = os.lstat(source).st_ino
            (old, before), (new, after) = (self._place(path, None) for path in (source, target))
            move(source, target)
            if self.renames:
                self.folders.get(old, {}).pop(before, None)
                self.folders.setdefault(new, {})[after] = number
            self.watch()

        return moved

    def _removing(self, remove):
        def removed(path, *, dir_fd=None):
            folder, name = self._place(path, dir_fd)
            remove(path, dir_fd=dir_fd)
            if self.removals:
                self.folders.get(folder, {}).pop(name, None)
            self.watch()

        return removed

    def after_a_failure(self, target):
        """Write what would be there into a new folder."""
        self._copy(self.root.stat().st_ino, target)
        return target

    def _copy(self, number, target):
        if number in self.files:
            target.write_bytes(self.files[number])
            return
        target.mkdir()
        for name, inner in self.folders.get(number, {}).items():
            self._copy(inner, target / name)

    def _keep(self, handle):
        self.handles.append(os.dup(handle))  # so that its number is given to no other file
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            self.folders[status.st_ino] = {}
            for name in os.listdir(handle):  # noqa: PTH208 - a handle is no path
                inner = os.stat(name, dir_fd=handle, follow_symlinks=False)
                self.folders[status.st_ino][name] = inner.st_ino
                if stat.S_ISREG(inner.st_mode):
                    self.files.setdefault(inner.st_ino, b"")
        else:
            self.files[status.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def _place(self, path, dir_fd):
        if dir_fd is not None:
            return os.fstat(dir_fd).st_ino, os.fspath(path)
        return Path(path).parent.stat().st_ino, Path(path).name

    def close(self):
        for handle in self.handles:
            os.close(handle)


class Promises:
    """A recorder, and how many steps of each episode must be there after a failure."""

    def __init__(self, disk, tmp_path):
        self.disk, self.copies = disk, tmp_path
        self.steps = {}
        disk.watch = self.check

    def recording(self, recorder):
        self.recorder = recorder
        self.start, self.add_chunk = recorder.start, recorder.add_chunk
        return self

    def append(self, step, observation, extra):
        self.recorder.append(step, observation, extra)
        self.made(self.recorder.id, self.recorder._flushed)

    def made(self, id_, steps):
        self.steps[id_] = steps
        self.check()

    def check(self):
        found = self.left()
        assert {id_: steps for id_, steps in self.steps.items() if found.get(id_, 0) < steps} == {}

    def left(self):
        """Steps per episode, finished or such as can be recovered; each is read whole."""
        copy = self.disk.after_a_failure(self.copies / f"copy-{len(list(self.copies.iterdir()))}")
        self.disk.watch = self.disk.ignore
        try:
            store = EpisodeStore(copy / PLACE)
            if not store.exists:
                return {}
            found = {id_: len(store.read(id_)) for id_ in store.ids()}
            partials = [Recording.read(copy / PLACE / ".recording" / one.id) for one in store.partials()]
            return found | {one.folder.name: one.verified().steps for one in partials if one.steps}
        finally:
            self.disk.watch = self.check


KINDS = {"lazy": (False, False), "renames": (True, False), "removals": (False, True), "eager": (True, True)}


@pytest.fixture(params=KINDS)
def promises(request, tmp_path, monkeypatch):
    root = tmp_path / "disk"
    root.mkdir()
    (tmp_path / "copies").mkdir()
    disk = Disk(root, *KINDS[request.param])
    disk.patch(monkeypatch)
    yield Promises(disk, tmp_path / "copies")
    disk.close()


def test_what_was_flushed_and_what_was_finished_outlasts_a_power_failure_at_any_moment(promises):
    store = EpisodeStore(promises.disk.root / PLACE, durable=True)
    with store.recorder(id="e", task="insert the peg", flush_every=3) as recorder:
        fill(promises.recording(recorder), 4, np.random.default_rng(0))
        assert promises.steps == {"e": 3}
        recorder.finish("success")
    promises.made("e", 4)
    promises.disk.watch = promises.disk.ignore
    store.write(episode("w", steps=2))
    promises.made("w", 2)
    assert promises.left() == {"e": 4, "w": 2}


def test_what_is_recovered_and_what_is_removed_outlasts_a_power_failure(promises):
    store = EpisodeStore(promises.disk.root / PLACE, durable=True)
    promises.disk.watch = promises.disk.ignore
    store.write(episode("w", steps=2))
    with store.recorder(id="torn", task="insert the peg", flush_every=3) as recorder:
        fill(recorder, 4, np.random.default_rng(0))
    promises.disk.watch = promises.check
    promises.made("torn", 4)
    store.recover("torn")
    promises.disk.watch = promises.disk.ignore
    store.remove("w")
    assert promises.left() == {"torn": 4}
