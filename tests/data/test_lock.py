"""The lock of a store, forks and other objects of the same program."""

import os

import pytest

from data.lock import FileLock


@pytest.fixture
def file(tmp_path):
    (tmp_path / "f").touch()
    return tmp_path / "f"


def test_a_lock_is_counted_and_excludes_others(file):
    one, other = FileLock(file), FileLock(file)
    assert one.acquire()
    assert one.acquire()
    one.release()
    assert not other.acquire()
    one.release()
    assert not one.held
    assert other.acquire()
    other.release()


def test_a_fork_neither_holds_nor_keeps_nor_gives_back_the_lock(file):
    lock = FileLock(file)
    assert lock.acquire()
    (held, release), (said, say) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(release)
        lock.release()
        os.write(say, bytes([lock.held]))
        os.read(held, 1)
        os._exit(0)
    assert os.read(said, 1) == b"\0"
    assert not FileLock(file).acquire()
    lock.release()
    other = FileLock(file)
    assert other.acquire()
    other.release()
    for handle in (held, release, said, say):
        os.close(handle)
    os.waitpid(child, 0)
