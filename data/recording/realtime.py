"""What of Python itself would hold a control loop up."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def realtime() -> Iterator[None]:
    """Keep Python's garbage collector from stopping a control loop, 10 ms at a time.

    Collects what is garbage now, takes all that is left out of later collections, and makes none inside the
    block. Objects are still freed when nobody refers to them; only cycles of objects that refer to each other
    stay until the block ends. Where collections were off before, they stay off; what was frozen before is not
    any more.
    """
    on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if on:
            gc.enable()
