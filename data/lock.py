"""One writer at a time; the operating system releases the lock of a process that died."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_POLL_S = 0.01
_LOCKS: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An exclusive lock on an existing file, counted, so that its holder may take it again.

    Args:
        path: The file; it is neither read nor written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self._depth = 0
        _LOCKS.add(self)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._depth > 0

    def acquire(self, wait_s: float = 0.0) -> bool:
        """Take the lock; waits up to `wait_s` seconds for it and says whether it was had.

        Raises:
            OSError: The file cannot be opened.
        """
        if self._depth == 0 and not self._lock(time.monotonic() + wait_s):
            return False
        self._depth += 1
        return True

    def taken(self) -> bool:
        """Whether somebody holds the lock; looking does not disturb others who look.

        Raises:
            OSError: The file cannot be opened.
        """
        handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def release(self) -> None:
        """Give back what one `acquire` took; nothing in a fork of the holder, which never held it."""
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and self._handle is not None:
            fcntl.flock(self._handle, fcntl.LOCK_UN)  # closing alone leaves it to a fork that has the handle
            self._forget()

    def _forget(self) -> None:
        self._depth = 0
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        """Enter with the lock already held."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release."""
        self.release()

    def _lock(self, until: float) -> bool:
        handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    os.close(handle)
                    return False
                time.sleep(_POLL_S)
            except BaseException:
                os.close(handle)
                raise
            else:
                self._handle = handle
                return True


def _forget_all() -> None:
    for lock in _LOCKS:
        lock._forget()  # noqa: SLF001 - this module's own


os.register_at_fork(after_in_child=_forget_all)
