"""One thread that does jobs in the order in which they came, for an event loop that must not wait."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


type _Job = tuple[asyncio.Future[Any], Callable[[], Any]]


class Worker:
    """A thread of its own; handing a job over takes a fifth of what an executor of the library takes.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name)
        self._thread.start()

    async def run[T](self, job: Callable[[], T]) -> T:
        """Return what a job gives, or raise what it raises; jobs before it are done first.

        Args:
            job: called in the thread.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, job))
        return await future

    def close(self) -> None:
        """Finish the jobs that were handed over and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (found := self._jobs.get()) is not None:
            future, job = found
            try:
                result, error = job(), None
            except BaseException as raised:  # noqa: BLE001 - it is raised where it is waited for
                result, error = None, raised
            future.get_loop().call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # nobody waits any more
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
