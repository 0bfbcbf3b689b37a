"""How many bytes a foreign file may unfold to, so that a small file cannot fill the memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from data.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

MAX_DECODED_BYTES = 8 << 30
"""Default limit per episode: 8 GiB, about two and a half hours of one 128 x 128 camera at 20 Hz."""


class Budget:
    """Bytes that one episode may still unfold to.

    Args:
        limit: Greatest number of decoded bytes; the option ``max_decoded_bytes`` of every reader.
        where: File or episode, for messages.

    Raises:
        ValueError: The limit is not positive.
    """

    def __init__(self, limit: int, where: str) -> None:
        if limit < 1:
            raise ValueError(f"max_decoded_bytes is {limit}; a positive number of bytes is needed.")
        self.limit = limit
        self.where = where
        self.left = limit

    def spend(self, size: int, what: str) -> None:
        """Take `size` bytes for `what` before they are decoded.

        Raises:
            DatasetError: The limit is passed; nothing was decoded.
        """
        if size > self.left:
            raise DatasetError(
                f"{self.where}: {what} unfolds to {size} bytes, which passes the limit of {self.limit} bytes "
                "per episode. If the file can be trusted, raise max_decoded_bytes."
            )
        self.left -= size

    def spend_array(self, shape: Sequence[int], dtype: np.dtype[np.generic], what: str) -> None:
        """Take the bytes of an array before it is read; sizes are multiplied without overflow.

        Raises:
            DatasetError: The shape is impossible, or the limit is passed.
        """
        if any(size < 0 for size in shape):
            raise DatasetError(f"{self.where}: {what} has shape {tuple(shape)}; sizes cannot be negative.")
        self.spend(math.prod(int(size) for size in shape) * dtype.itemsize, f"{what} of shape {tuple(shape)}")
