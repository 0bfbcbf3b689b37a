"""Puts a report together: headline, proof on film, curves, facts."""

import logging
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.config import from_dict
from data.manifest import atomic_write_text, check_writable
from data.records import Episode
from robot_rl.evaluate import EvaluateConfig
from robot_rl.report import page as html
from robot_rl.report.frames import RenderingError, render, replay_of, side_by_side
from robot_rl.report.material import ARMS, Material, bands, choose_seed, read_material
from robot_rl.report.page import Page
from robot_rl.report.plots import Curve, Rate, curves, rates, running_mean
from robot_rl.report.video import encode, media_type

logger = logging.getLogger(__name__)

FRAME_RATE = 20.0
"""Frames per second of the videos; every second control step is a frame."""
STEPS = "environment steps"
TITLES = {"refine": "Refinement", "collect": "Demonstrations", "train": "Training"}
COUNTS = {"env_steps": STEPS, "episodes": "episodes", "kept": "episodes kept", "failed": "failed attempts"}


def write_report(run: Path, out: Path | None = None, *, video: bool = True) -> Path:
    """Write one self-contained page about a run.

    Args:
        run: the run directory; result.json must be there.
        out: the page; ``report.html`` in the run by default.
        video: whether to render one. Without OpenGL the page says so and goes without.

    Returns:
        the page's path.

    Raises:
        RunError: if there is no finished run.
        ValueError: if the page cannot be written there.
    """
    target = out or run / "report.html"
    material = read_material(run)
    check_writable(target, "out")
    page = _opening(material)
    if material.compares:
        _rates(page, material)
        if video:
            _film(page, material)
        _seeds(page, material)
    _learning(page, material)
    _episode_curves(page, material)
    _proof(page, material)
    page.folded("Configuration", material.config)
    versions = material.result.get("versions", {})
    page.folded("Versions", versions)
    atomic_write_text(target, page.render(_footer(versions)))
    return target


def _opening(material: Material) -> Page:
    kicker = f"robot-rl {material.kind} · {material.task}"
    if not material.compares:
        return Page(kicker, f"{TITLES.get(material.kind, 'Run')} on {material.task}", _cost(material.result))
    before, after = (material.result[arm]["success_rate"] for arm in ARMS)
    found = material.difference()
    low, high = found.interval
    count = len(material.outcomes("base"))
    lead = (
        f"On the same {count} held-out seeds, refinement changed success by {100 * found.value:+.1f} points "
        f"(95 % interval {100 * low:+.1f} to {100 * high:+.1f})."
    )
    if low <= 0 <= high:
        lead += " This many episodes cannot tell whether it changed anything."
    if _untouched(material.result):
        lead += " The weights of the base policy did not change."
    return Page(kicker, f"From {_short(before)} to {_short(after)} success", lead)


def _cost(result: Mapping[str, Any]) -> str:
    parts = [f"{result[name]:,} {words}" for name, words in COUNTS.items() if name in result]
    if "wall_seconds" in result:
        parts.append(_duration(result["wall_seconds"]))
    return ", ".join(parts) + "." if parts else ""


def _rates(page: Page, material: Material) -> None:
    names = {"base": "base policy alone", "refined": "with the correction"}
    numbers = [(_percent(material.result[arm]["success_rate"]), names[arm], arm) for arm in ARMS]
    found = material.difference()
    numbers.append((f"{100 * found.value:+.1f}", "points, on the same seeds", ""))
    if "env_steps" in material.result:
        numbers.append((f"{material.result['env_steps']:,}", "environment steps of refinement", ""))
    if "wall_seconds" in material.result:
        numbers.append((_duration(material.result["wall_seconds"]), "from start to end", ""))
    page.numbers(numbers)
    drawn = [
        Rate(names[arm], material.result[arm]["success_rate"], tuple(material.result[arm]["interval"]), arm)
        for arm in ARMS
    ]
    note = "Wilson intervals. They cover the luck of these episodes, not of another training seed."
    page.add(html.figure(rates(drawn), note))


def _film(page: Page, material: Material) -> None:
    if not all(material.episodes[arm] for arm in ARMS):
        return
    pair = _shown_pair(material)
    page.section("The same seed, before and after", f"Seed {pair[0].seed}, every second control step.")
    options = from_dict(EvaluateConfig, material.evaluation()).task_arguments
    try:
        left, right = render([replay_of(episode, material.task, options, every=2) for episode in pair])
    except RenderingError as error:
        logger.warning("the report goes without a video: %s", error)
        page.add(f'<p class="note">No video: {escape(str(error))}</p>')
        return
    content = encode(side_by_side(left, right, (pair[0].success, pair[1].success)), FRAME_RATE)
    titles = [
        f"{name}: {'success' if episode.success else 'failure'} after {len(episode)} steps"
        for name, episode in zip(("before", "after"), pair, strict=True)
    ]
    page.add(html.figure(html.video(content, media_type(), *titles)))


def _shown_pair(material: Material) -> tuple[Episode, Episode]:
    """The episodes of the video: of the chosen seed, else of one that was gained, else the first."""
    after = {episode.seed: episode for episode in material.episodes["refined"]}
    pairs = [(episode, after[episode.seed]) for episode in material.episodes["base"] if episode.seed in after]
    gained = [pair for pair in pairs if not pair[0].success and pair[1].success]
    seed = choose_seed(*(material.result[arm] for arm in ARMS))
    chosen = [pair for pair in pairs if pair[0].seed == seed]
    return (chosen or gained or pairs)[0]


def _seeds(page: Page, material: Material) -> None:
    found = material.difference()
    note = (
        f"{found.only_second} seeds were gained and {found.only_first} lost "
        f"(exact McNemar test: p = {found.p_value:.2g})."
    )
    page.section("Seed by seed", note)
    page.add(html.figure(html.seed_grid(*(material.outcomes(arm) for arm in ARMS))))


def _learning(page: Page, material: Material) -> None:
    rows = [row for row in material.metrics if row.get("success") is not None]
    if not rows:
        return
    steps = [row["step"] for row in rows]
    success = 100 * running_mean([row["success"] for row in rows], 10)
    drawn = [
        html.figure(
            curves(
                [Curve("", steps, success)],
                x_label=STEPS,
                y_label="success in %",
                limits=(0, 100),
            ),
            "Success while learning, exploration included, mean of ten waves.",
        )
    ]
    sized = [row for row in rows if row.get("residual_rms") is not None]
    if sized:
        size = 100 * running_mean([row["residual_rms"] for row in sized], 10)
        line = Curve("", [row["step"] for row in sized], size)
        plot = curves([line], x_label=STEPS, y_label="correction in % of its bound")
        drawn.append(html.figure(plot, "Size of the correction while learning (root mean square)."))
    page.section("Learning")
    page.figures(*drawn)


def _episode_curves(page: Page, material: Material) -> None:
    refined = material.episodes["refined"]
    drawn = []
    sizes = _band(refined, "residual", _root_mean_square, "refined", "")
    if sizes is not None:
        plot = curves([sizes], x_label="control step", y_label="correction in % of its bound")
        drawn.append(html.figure(plot, "Size of the correction (root mean square over dimensions)."))
    names = {"base": "base", "refined": "refined"}
    forces = [_band(material.episodes[arm], "contact_force_n", np.ravel, arm, names[arm]) for arm in ARMS]
    present = [force for force in forces if force is not None]
    if present:
        plot = curves(present, x_label="control step", y_label="contact force in N")
        drawn.append(html.figure(plot, "Contact force on the held object."))
    if drawn:
        count = len(refined)
        note = f"Median and quartiles of {count} episodes, the one above among them."
        page.section("Within an episode", note)
        page.figures(*drawn)


def _root_mean_square(residual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Size of (T, A) corrections in percent of their bound, (T,)."""
    return np.asarray(100 * np.sqrt(np.mean(residual**2, axis=1)))


def _band(
    episodes: Sequence[Episode],
    key: str,
    size: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    colour: str,
    name: str,
) -> Curve | None:
    measured = [episode for episode in episodes if key in episode.extra]
    low, middle, high = bands(measured, [size(episode.extra[key]) for episode in measured])
    if not len(middle):
        return None
    return Curve(name, np.arange(1, len(middle) + 1), middle, low, high, colour)


def _untouched(result: Mapping[str, Any]) -> bool:
    before, after = result.get("base_hash_before"), result.get("base_hash_after")
    return before is not None and before == after


def _proof(page: Page, material: Material) -> None:
    result = material.result
    facts = []
    if "base_hash_before" in result:
        words = (
            '<span class="good">unchanged</span>'
            if _untouched(result)
            else '<span class="bad">CHANGED</span>'
        )
        facts += [
            ("Base policy", words),
            ("Hash before", f"<code>{escape(result['base_hash_before'])}</code>"),
            ("Hash after", f"<code>{escape(result['base_hash_after'])}</code>"),
        ]
    facts += [
        (name.capitalize(), escape(_duration(seconds))) for name, seconds in result.get("stages", {}).items()
    ]
    if "wall_seconds" in result:
        facts.append(("Wall time", escape(_duration(result["wall_seconds"]))))
    if result.get("git_revision"):
        facts.append(("Revision", f"<code>{escape(result['git_revision'])}</code>"))
    if facts:
        page.section(
            "Proof and cost", "The hash covers every parameter and buffer of the base, and their names."
        )
        page.facts(facts)


def _short(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + "\u2009%"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u2009%"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def _footer(versions: Mapping[str, Any]) -> str:
    named = ("robot-rl", "python", "mujoco", "torch")
    return "Made with " + ", ".join(f"{name} {versions[name]}" for name in named if name in versions) + "."
