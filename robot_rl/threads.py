"""Threads of numerical libraries: one per process, and none that spins while it waits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def limit_threads() -> None:
    """Set the environment of OpenMP and BLAS; call it before torch or NumPy are imported.

    Our networks are small and work runs in several processes, so a second thread only waits, and OpenMP's
    waiting threads spin by default. Values that are already set stay.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run the block with one torch thread, so that sums have one order however many cores there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
