"""When a chunk is computed and when it may act: in simulated time, or beside a running robot."""

from __future__ import annotations

import math
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from robot_rl.planning import Planned


class Ticket(Protocol):
    """A chunk that was asked for."""

    def wait(self) -> Planned:
        """Return the chunk as soon as it is there."""
        ...

    def take(self, step: int) -> Planned | None:
        """Return the chunk if it may act at control step `step`, else None.

        Raises:
            PolicyAwayError: The policy gives no chunk now; a moving robot holds still and asks again.
        """
        ...


class Planner(Protocol):
    """Computes chunks for the control loop."""

    waits: bool
    """Whether the loop may wait for a chunk where a row has none in the middle of an episode; a robot that
    moves holds still instead."""

    def delay(self) -> int:
        """Control steps that will pass between an observation and its chunk."""
        ...

    def busy(self) -> bool:
        """Whether no further chunk can be asked for now."""
        ...

    def ask(self, compute: Callable[[int], Planned], step: int, delay: int) -> Ticket:
        """Begin to compute a chunk.

        Args:
            compute: called once with `delay`; it returns the chunk.
            step: control step of the observation.
            delay: control steps that are expected to pass.
        """
        ...


class SimulatedPlanner:
    """Computes each chunk at once and lets it act after a fixed number of control steps.

    Args:
        delay: control steps.
    """

    waits = True

    def __init__(self, delay: int = 0) -> None:
        self._delay = delay

    def delay(self) -> int:
        """The fixed number."""
        return self._delay

    def busy(self) -> bool:
        """Never."""
        return False

    def ask(self, compute: Callable[[int], Planned], step: int, delay: int) -> Ticket:
        """Compute a chunk; see `Planner.ask`."""
        return _Done(compute(delay), step + delay)


class _Done:
    def __init__(self, planned: Planned, due: int) -> None:
        self._planned, self._due = planned, due

    def wait(self) -> Planned:
        return self._planned

    def take(self, step: int) -> Planned | None:
        return self._planned if step >= self._due else None


class BackgroundPlanner:
    """Computes chunks in a thread of its own while the robot executes the last one.

    The expected delay is the greatest of the last `window` measured ones. It is counted in control steps that
    passed, not in seconds, so a chunk is always joined where the robot is. The first chunk, which pays for
    warming up, is forgotten as soon as there is another.

    Args:
        rate_hz: control rate, to tell the first delay, before which nothing moves, in control steps.
        window: measurements that are remembered.

    Raises:
        ValueError: A number is not positive.

    Use it as a context manager, or call `close`.
    """

    waits = False

    def __init__(self, rate_hz: float, window: int = 8) -> None:
        if window < 1 or not 0 < rate_hz < math.inf:
            raise ValueError(f"window is {window} and rate_hz {rate_hz}; both must be positive.")
        self._rate_hz = rate_hz
        self._measured: deque[int] = deque(maxlen=window)
        self._warm = False
        self._running: Future[Planned] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chunks")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the chunk that is being computed and end the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def delay(self) -> int:
        """Greatest of the last measured delays, in control steps; 1 before the first."""
        return max(self._measured, default=1)

    def busy(self) -> bool:
        """Whether a chunk is being computed."""
        return self._running is not None and not self._running.done()

    def ask(self, compute: Callable[[int], Planned], step: int, delay: int) -> Ticket:
        """Begin to compute a chunk; see `Planner.ask`.

        Raises:
            RuntimeError: One is being computed already.
        """
        if self.busy():
            raise RuntimeError("A chunk is being computed; ask again when `busy` says that it is done.")
        self._running = self._thread.submit(compute, delay)
        return _Background(self, self._running, step)

    def measured(self, steps: int) -> None:
        """Remember that a chunk took `steps` control steps."""
        if not self._warm:
            self._measured.clear()
            self._warm = True
        self._measured.append(steps)

    def waited(self, seconds: float) -> None:
        """Remember for the time being that the first chunk took `seconds`."""
        if not self._measured:
            self._measured.append(math.ceil(seconds * self._rate_hz))


class _Background:
    """One chunk of a `BackgroundPlanner`."""

    def __init__(self, planner: BackgroundPlanner, future: Future[Planned], step: int) -> None:
        self._planner, self._future, self._step = planner, future, step
        self._counted = False

    def wait(self) -> Planned:
        began = time.monotonic()
        planned = self._future.result()
        self._planner.waited(time.monotonic() - began)
        self._counted = True
        return planned

    def take(self, step: int) -> Planned | None:
        if not self._future.done():
            return None
        planned = self._future.result()
        if not self._counted:  # what failed says nothing of how long a chunk takes
            self._counted = True
            self._planner.measured(step - self._step)
        return planned
