"""Small drawings of one episode that cost a few kilobytes: who acted when, signals over time, thumbnails.

A page may hold hundreds of episodes, so these are written as SVG directly and not by matplotlib.
"""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

from data.records import Episode

SOURCES = ("policy", "human", "demo", "paused")
KINDS = ("correction", "recovery", "rewind")
POINTS = 160
"""Most points of a line; of more, the least and the greatest of each stretch are drawn."""
_WIDTH, _HEIGHT = 320, 56


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a strip.

    Attributes:
        values: (N,), over the whole episode; NaN leaves a hole.
        style: class of the style sheet: ``base``, ``refined`` or ``soft``.
    """

    values: ArrayLike
    style: str = "refined"


def segment_bar(episode: Episode) -> str:
    """Who acted when, as one bar over the episode, and its events as marks."""
    steps = len(episode)
    edges = np.flatnonzero(
        (episode.source[1:] != episode.source[:-1])
        | (episode.segment_id[1:] != episode.segment_id[:-1])
        | (episode.segment_kind[1:] != episode.segment_kind[:-1])
    )
    starts = [0, *(int(edge) + 1 for edge in edges)]
    parts = []
    for start, stop in zip(starts, [*starts[1:], steps], strict=True):
        source, kind = str(episode.source[start]), str(episode.segment_kind[start])
        words = f"{source}{f', {kind}' if kind != 'none' else ''}: steps {start} to {stop - 1}"
        parts.append(
            f'<rect class="{source} {kind}" x="{_percent(start, steps)}" '
            f'width="{_percent(stop - start, steps)}" height="100%"><title>{escape(words)}</title></rect>'
        )
    return f'<svg class="bar" role="img">{"".join(parts)}{_marks(episode)}</svg>'


def _marks(episode: Episode) -> str:
    times = episode.monotonic_time
    if not episode.events or not np.isfinite(times).all():
        return ""
    marks = []
    for event in episode.events:
        step = min(int(np.searchsorted(times, event.time)), len(times))
        words = f"{event.kind}{f': {event.because}' if event.because else ''}, step {step}"
        place = _percent(step, len(times))
        marks.append(
            f'<line class="event" x1="{place}" x2="{place}" y1="0" y2="100%">'
            f"<title>{escape(words)}</title></line>"
        )
    return "".join(marks)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g}%"


def legend(episodes_have: Iterable[str]) -> str:
    """What the colours of `segment_bar` mean, for the sources and kinds that occur."""
    names = {"policy": "policy", "human": "person", "demo": "demonstration", "paused": "pause"}
    names |= {kind: kind for kind in KINDS}
    present = set(episodes_have)
    entries = [
        f'<span><svg class="bar key"><rect class="{"human " if name in KINDS else ""}{name}" width="100%" '
        f'height="100%"/></svg>{words}</span>'
        for name, words in names.items()
        if name in present
    ]
    return f'<div class="legend">{"".join(entries)}</div>'


def strip(title: str, lines: Sequence[Line], unit: str = "") -> str:
    """Signals over time with their range in words; what is constant or missing says so.

    Args:
        title: what is drawn.
        lines: of one unit, drawn in this order over a common range.
        unit: of the values.
    """
    arrays = [np.asarray(line.values, np.float64) for line in lines]
    finite = np.concatenate([array[np.isfinite(array)] for array in arrays])
    if not len(finite):
        return ""
    low, high = float(finite.min()), float(finite.max())
    caption = f"{title}: {_range(low, high)} {unit}".rstrip()
    drawn = "".join(
        _polyline(array, line.style, low, high) for array, line in zip(arrays, lines, strict=True)
    )
    return (
        f'<figure class="strip"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
        f"{drawn}</svg>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _polyline(values: NDArray[np.float64], style: str, low: float, high: float) -> str:
    at, kept = _thinned(values)
    x = at / max(len(values) - 1, 1) * _WIDTH
    y = np.full(len(kept), _HEIGHT / 2) if high == low else (high - kept) / (high - low) * (_HEIGHT - 4) + 2
    groups: list[list[str]] = [[]]
    for px, py in zip(x, y, strict=True):
        if np.isfinite(py):
            groups[-1].append(f"{px:.1f},{py:.1f}")
        elif groups[-1]:
            groups.append([])
    return "".join(f'<polyline class="{style}" points="{" ".join(group)}"/>' for group in groups if group)


def _thinned(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Indices and values to draw: of many the extremes of each stretch, so that no peak is lost."""
    if len(values) <= POINTS:
        return np.arange(len(values)), values
    found: list[int] = []
    for stretch in np.array_split(np.arange(len(values)), POINTS // 2):
        part = values[stretch]
        if np.isnan(part).all():
            found.append(int(stretch[0]))
            continue
        found += sorted({int(stretch[np.nanargmin(part)]), int(stretch[np.nanargmax(part)])})
    at = np.array(found, np.int64)
    return at, values[at]


def _range(low: float, high: float) -> str:
    """Two numbers with as many digits as tell them apart."""
    digits = next((n for n in range(3, 9) if f"{low:.{n}g}" != f"{high:.{n}g}"), 3)
    return f"{low:.{digits}g} to {high:.{digits}g}"


def thumbnail(picture: NDArray[np.uint8], width: int = 112) -> str:
    """A picture (H, W, 1, 3 or 4) uint8 as a small JPEG in an image tag."""
    from PIL import Image

    height = max(1, round(picture.shape[0] * width / picture.shape[1]))
    pixels = picture[:, :, 0] if picture.shape[2] == 1 else picture[:, :, :3]
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).resize((width, height)).save(buffer, "JPEG", quality=70)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="" width="{width}" height="{height}" src="data:image/jpeg;base64,{data}">'
