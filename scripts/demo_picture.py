"""Draw a finished demo as one picture for the README: the same seed before and after, and the learning curve.

.venv/bin/python scripts/demo_picture.py outputs/demo [outputs/demo-1 ...]   (the frames are the first demo's)
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from data.config import from_dict
from robot_rl.evaluate import EvaluateConfig
from robot_rl.report.frames import render, replay_of
from robot_rl.report.material import ARMS, Material, read_material
from robot_rl.report.plots import running_mean

TARGET = Path(__file__).resolve().parent.parent / "docs" / "assets" / "demo.png"
COLUMNS = 5
TITLES = {"base": "before", "refined": "after"}


def strips(material: Material) -> dict[str, list[np.ndarray]]:
    """A few pictures of the shown seed under each arm, first to last."""
    options = from_dict(EvaluateConfig, material.evaluation()).task_arguments
    episodes = [material.episodes[arm][0] for arm in ARMS]
    films = render([replay_of(episode, material.task, options) for episode in episodes])
    picks = [np.linspace(0, len(film) - 1, COLUMNS).round().astype(int) for film in films]
    return {arm: [film[i] for i in pick] for arm, film, pick in zip(ARMS, films, picks, strict=True)}


def draw_curve(axes: Axes, materials: list[Material]) -> None:
    """Success while learning, one line per demo, and the evaluated rates of the base at the left edge."""
    for material in materials:
        rows = [row for row in material.metrics if "success" in row]
        steps = [row["step"] for row in rows]
        seed = material.config["seed"]
        axes.plot(steps, 100 * running_mean([row["success"] for row in rows], 10), label=f"seed {seed}")
    axes.set(xlabel="environment steps", ylabel="success in %, exploration included", ylim=(0, 101))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def draw_rates(axes: Axes, materials: list[Material]) -> None:
    """Evaluated success of base and refined policy with Wilson intervals, one pair per demo."""
    for offset, arm, colour in ((-0.18, "base", "#b4541a"), (0.18, "refined", "#0b7a75")):
        rates = np.array([material.result[arm]["success_rate"] for material in materials])
        limits = np.array([material.result[arm]["interval"] for material in materials])
        errors = np.abs(limits.T - rates) * 100
        places = np.arange(len(materials)) + offset
        axes.bar(places, 100 * rates, 0.34, yerr=errors, color=colour, capsize=3, label=TITLES[arm])
    axes.set_xticks(range(len(materials)), [f"seed {material.config['seed']}" for material in materials])
    axes.set(ylabel="success on 200 held-out seeds, %", ylim=(0, 101))
    axes.legend(frameon=False, loc="upper left", ncols=2, bbox_to_anchor=(0, 1.14))


def main(folders: list[Path]) -> None:
    """Draw the picture of the given demos."""
    materials = [read_material(folder) for folder in folders]
    figure = plt.figure(figsize=(11, 8), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    grid = top.subplots(len(ARMS), COLUMNS)
    for line, (arm, frames) in zip(grid, strips(materials[0]).items(), strict=True):
        episode = materials[0].episodes[arm][0]
        for axes, frame in zip(line, frames, strict=True):
            axes.imshow(frame)
            axes.set(xticks=[], yticks=[])
        ending = "success" if episode.success else "failure"
        line[0].set_ylabel(f"{TITLES[arm]}: {ending}\nafter {len(episode)} steps")
    left, right = bottom.subplots(1, 2)
    draw_rates(left, materials)
    draw_curve(right, materials)
    figure.savefig(TARGET, dpi=100)


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
