"""Plots as inline SVG whose colours follow the page, light or dark."""

import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins that become the page's CSS variables, because matplotlib knows fixed colours only.
COLOURS = {
    "ink": "#010101",
    "soft": "#020202",
    "line": "#030303",
    "base": "#040404",
    "refined": "#050505",
    "bad": "#060606",
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": COLOURS["line"],
    "axes.labelcolor": COLOURS["soft"],
    "axes.titlecolor": COLOURS["ink"],
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["soft"],
    "ytick.color": COLOURS["soft"],
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "svg.hashsalt": "robot-rl",
}


@dataclass(frozen=True)
class Rate:
    """A success rate to draw."""

    name: str
    value: float
    interval: tuple[float, float]
    colour: str = "refined"


@dataclass(frozen=True)
class Curve:
    """A curve to draw.

    Attributes:
        name: for the legend; empty for none.
        x: (N,).
        y: (N,).
        low: (N,) lower edge of a band, or None.
        high: (N,) upper edge of it.
        colour: one of ``COLOURS``.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    colour: str = "refined"


def rates(values: Sequence[Rate]) -> str:
    """Success rates as dots with their intervals, first on top."""
    figure, axes = _axes(5.4, 0.58 * len(values) + 0.75)
    for row, rate in enumerate(values):
        low, high = (100 * limit for limit in rate.interval)
        colour = COLOURS[rate.colour]
        axes.plot([low, high], [row, row], color=colour, linewidth=5, alpha=0.35, solid_capstyle="round")
        axes.plot([100 * rate.value], [row], "o", color=colour, markersize=9)
        label = f"{100 * rate.value:.1f} %"
        axes.annotate(
            label, (100 * rate.value, row), (0, 9), textcoords="offset points", ha="center", color=colour
        )
    axes.set_yticks(range(len(values)), [rate.name for rate in values])
    axes.tick_params(axis="y", length=0, labelcolor=COLOURS["ink"])
    axes.set_ylim(len(values) - 0.5, -0.75)
    axes.set_xlim(0, 100)
    axes.set_xlabel("success in % (bars: 95 % interval)")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    return _svg(figure)


def curves(
    values: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    limits: tuple[float, float] | None = None,
    threshold: tuple[float, str] | None = None,
    width: float = 5.2,
) -> str:
    """Curves over a common axis.

    Args:
        values: what to draw.
        x_label: quantity and unit.
        y_label: quantity and unit.
        limits: range of y.
        threshold: a level and what it means, drawn as a dashed line.
        width: inches, at 3.1 inches height.
    """
    figure, axes = _axes(width, 3.1)
    for curve in values:
        colour = COLOURS[curve.colour]
        label = curve.name or None
        axes.plot(np.asarray(curve.x), np.asarray(curve.y), color=colour, linewidth=2, label=label)
        if curve.low is not None and curve.high is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    if threshold is not None:
        axes.axhline(threshold[0], color=COLOURS["bad"], linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            threshold[1],
            (1.0, threshold[0]),
            (-2, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            color=COLOURS["bad"],
            fontsize=9,
        )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if limits is not None:
        axes.set_ylim(*limits)
    if any(curve.name for curve in values):
        axes.legend(loc="best", fontsize=9.5, frameon=False)
    return _svg(figure)


def running_mean(values: ArrayLike, window: int) -> NDArray[np.float64]:
    """Mean of the last ``window`` values at each place; of fewer at the start. Shapes (N,) to (N,)."""
    sums = np.cumsum(np.concatenate([[0.0], np.asarray(values, np.float64)]))
    stop = np.arange(1, len(sums))
    start = np.maximum(stop - window, 0)
    return np.asarray((sums[stop] - sums[start]) / (stop - start))


def _axes(width: float, height: float) -> tuple["Figure", "Axes"]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.add_subplot()


def _svg(figure: "Figure") -> str:
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    for name, stand_in in COLOURS.items():
        text = text.replace(stand_in, f"var(--{name})")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    # Identifiers must differ between the plots of one page.
    mark = f"p{zlib.crc32(text.encode()):x}"
    text = re.sub(r'\bid="', f'id="{mark}-', text)
    text = re.sub(r"url\(#", f"url(#{mark}-", text)
    return re.sub(r'href="#', f'href="#{mark}-', text)
