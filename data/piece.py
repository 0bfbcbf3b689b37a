"""Consecutive steps of an episode that is being recorded, between its builder and the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from data.events import Event
from data.steps import Chunk
from data.streams import Stream


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive steps of an episode.

    Attributes:
        steps: How many.
        observations: Rows by key; the first piece holds one more than it has steps.
        columns: Rows by column name.
        extra: Rows by key.
        chunks: Plans that were added.
        streams: Samples by key.
        events: Events that were added.
    """

    steps: int
    observations: Mapping[str, NDArray[Any]]
    columns: Mapping[str, NDArray[Any]]
    extra: Mapping[str, NDArray[Any]]
    chunks: tuple[Chunk, ...]
    streams: Mapping[str, Stream]
    events: tuple[Event, ...]
