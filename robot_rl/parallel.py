"""Independent tasks in worker processes; the results are the same for any number of workers."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

_function: Callable[[Any], Any] | None = None
_setup_error: Exception | None = None

MOST_WORKERS = 256
"""More processes than that are a slip of the finger on any machine."""


class WorkerDiedError(RuntimeError):
    """A worker process ended before its task did, most often for lack of memory."""


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resolve_workers(asked: int, tasks: int) -> int:
    """Number of workers for a number of tasks.

    Args:
        asked: 0 for one per core, else as many as asked for.
        tasks: more workers than tasks are never started.
    """
    if not 0 <= asked <= MOST_WORKERS:
        raise ValueError(f"workers is {asked}, allowed is 0 (one per core) to {MOST_WORKERS}")
    return max(1, min(asked or cores(), tasks))


def run_tasks[Task, Result](
    make_function: Callable[[], Callable[[Task], Result]], tasks: Sequence[Task], workers: int
) -> Iterator[tuple[int, Result]]:
    """Run a function over tasks and yield results as they come.

    With one worker everything runs in this process. Leaving the iteration early, by an error or Ctrl-C,
    ends the workers; they end by themselves when this process is killed.

    Args:
        make_function: builds the function, once per process, so that what is costly to load is loaded once;
            must be picklable, as must tasks and results. Scripts need the ``if __name__ == "__main__"``
            guard of multiprocessing's spawn method.
        tasks: what to run.
        workers: number of processes.

    Yields:
        position of the task in ``tasks``, and its result.

    Raises:
        WorkerDiedError: if a worker was killed.
        Exception: what the function raised, in the first task that failed.
    """
    if workers <= 1:
        function = make_function()
        for index, task in enumerate(tasks):
            yield index, function(task)
        return
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(make_function,)
    )
    finished = False
    try:
        waiting: dict[Future[Result], int] = {pool.submit(_call, task): i for i, task in enumerate(tasks)}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
        finished = True
    except BrokenProcessPool as error:
        raise WorkerDiedError(
            f"one of {workers} workers was killed, perhaps for lack of memory: try fewer with --workers"
        ) from error
    finally:
        pool.shutdown(wait=finished, cancel_futures=True)
        if not finished:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()


def _start_worker(make_function: Callable[[], Callable[[Any], Any]]) -> None:
    global _function, _setup_error  # noqa: PLW0603 - the pool gives a worker no other place to keep things
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _function = make_function()
    except Exception as error:  # noqa: BLE001 - raised to the caller by the first task
        _setup_error = error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(task: Any) -> Any:  # noqa: ANN401 - generic in the public function
    if _setup_error is not None:
        raise _setup_error
    assert _function is not None, "the pool runs _start_worker first"
    return _function(task)
