"""Streams as the control steps saw them: the newest sample that was there, never one from the future."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from data.records import Episode


def at_steps(episode: Episode, keys: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """Resample streams to the steps of an episode.

    Args:
        episode: With streams; its steps' `monotonic_time` and the streams' times are of one clock.
        keys: Which streams; all where None.

    Returns:
        By key, (T, ...): row t is the newest sample whose time is not after step t's.

    Raises:
        KeyError: The episode has no such stream.
        ValueError: At some step a stream had no sample yet; names both.
    """
    return {key: _at_steps(episode, key) for key in (episode.streams if keys is None else keys)}


def _at_steps(episode: Episode, key: str) -> NDArray[Any]:
    if key not in episode.streams:
        hint = did_you_mean(key, episode.streams, f"it has {sorted(episode.streams)}.")
        raise KeyError(f"Episode {episode.id} has no stream {key!r}; {hint}")
    stream = episode.streams[key]
    early = int((stream.latest_before(episode.monotonic_time) < 0).sum())
    if early:
        first = f"its first came at {stream.times.min():.6f} s" if len(stream) else "it has none at all"
        raise ValueError(
            f"Episode {episode.id}: stream {key!r} had no sample yet at {early} of {len(episode)} steps "
            f"({first}; step 0 was at {episode.monotonic_time[0]:.6f} s). Cut those steps off, or start the "
            "sensor before the episode."
        )
    return stream.at(episode.monotonic_time)
