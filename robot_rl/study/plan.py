"""The file of a study and the grid of cells it stands for.

::

    name = "touch"
    tier = 1
    seeds = [0, 1, 2]
    episodes = 300
    first_seed = 10000

    [[tasks]]
    name = "peg-insert"

    [[methods]]
    name = "residual"
    run = "robot_rl.study.methods:residual"
    parameters = { policy = "outputs/base" }

    [[arms]]
    name = "all sensors"

    [[arms]]
    name = "touch zeroed"
    control = true
    methods = ["residual"]
    parameters = { zeroed = ["observation.tactile.left", "observation.tactile.right"] }
"""

import itertools
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.config import from_dict, to_dict
from data.manifest import writable_folder
from robot_rl.provenance import config_hash
from robot_rl.seeds import check_episodes, trained_on
from robot_rl.task_settings import read_settings

TIERS = {1: (3, 300), 2: (1, 100)}
"""Least training seeds and episodes of each tier."""
PLAIN = "default"
"""Name of the arm that needs no name."""


class StudyError(ValueError):
    """A study cannot be read or run as asked; the message says why and what to do."""


@dataclass(frozen=True)
class Method:
    """How a cell is computed."""

    name: str
    run: str
    """``module:function``, called as ``robot_rl.study.cell.CellFunction`` says"""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    core_minutes: float | None = None
    """measured cost of one cell, where none is finished yet; else a guess is measured here"""
    cores: int = 1
    """cores that one cell keeps busy"""


@dataclass(frozen=True)
class TaskEntry:
    """A task of the grid."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """of its constructor; ``shifts`` is a table of `sim.shifts.Shifts`, ``cameras`` a list of names"""

    def __post_init__(self) -> None:
        """Check the options' types before anything is computed."""
        read_settings(self.options)


@dataclass(frozen=True)
class Arm:
    """One setting that is compared with the others on the same seeds."""

    name: str
    """``default`` is left out in tables"""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """put over the method's own"""
    control: bool = False
    """whether it would expose a wrong explanation of the gain"""
    methods: tuple[str, ...] = ()
    """names of the methods that it makes sense for; all when empty"""

    def applies_to(self, method: str) -> bool:
        """Whether the method is run with this setting."""
        return not self.methods or method in self.methods


@dataclass(frozen=True)
class Study:
    """A grid of cells and how much they may cost."""

    name: str
    tier: int
    methods: tuple[Method, ...]
    tasks: tuple[TaskEntry, ...]
    seeds: tuple[int, ...]
    """training seeds"""
    episodes: int
    """evaluation episodes per cell; the same seeds in every cell"""
    arms: tuple[Arm, ...] = (Arm(PLAIN),)
    """the first is what the others are compared with"""
    first_seed: int = 10_000
    """seed of the first evaluation episode"""
    budget_core_hours: float = 6.0
    results: Path = Path("results")
    scratch: Path = Path("outputs/studies")
    docs: Path = Path("docs/studies")

    def __post_init__(self) -> None:
        """Check the values, the tier's demands first."""
        if self.tier not in TIERS:
            raise StudyError(f"tier is {self.tier}, allowed are 1 (carries claims) and 2 (exploratory)")
        seeds, episodes = TIERS[self.tier]
        if len(self.seeds) < seeds:
            raise StudyError(
                f"tier {self.tier} needs {seeds} training seeds, the file gives {len(self.seeds)}"
            )
        if self.episodes < episodes:
            raise StudyError(
                f"tier {self.tier} needs {episodes} episodes per arm, the file gives {self.episodes}"
            )
        _check_episodes(self)
        if self.tier == 1 and not any(arm.control for arm in self.arms):
            raise StudyError("tier 1 needs a control: add an arm with control = true, or make it tier 2")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise StudyError(
                f"name is {self.name!r}: use letters, digits, '.', '_' and '-', it names a folder"
            )
        for what in ("methods", "tasks", "arms", "seeds"):
            values = getattr(self, what)
            names = [getattr(value, "name", value) for value in values]
            if not names or len(set(names)) != len(names):
                raise StudyError(f"{what} are {names}: at least one, each once")
        known = {method.name for method in self.methods}
        for arm in self.arms:
            if unknown := sorted(set(arm.methods) - known):
                raise StudyError(f"arm {arm.name!r} names methods {unknown}, the study has {sorted(known)}")
        _refuse_shared_files(self)


@dataclass(frozen=True)
class Cell:
    """One experiment of the grid."""

    study: str
    method: str
    run: str
    task: str
    options: Mapping[str, Any]
    arm: str
    control: bool
    parameters: Mapping[str, Any]
    seed: int
    episodes: int
    first_seed: int

    @property
    def config_hash(self) -> str:
        """Hash of everything that determines the cell's result; names and roles of arms do not."""
        facts = to_dict(self)
        return config_hash(
            {name: facts[name] for name in facts if name not in {"study", "method", "arm", "control"}}
        )

    @property
    def id(self) -> str:
        """Readable name, unique in the study; changes with the configuration."""
        words = "-".join((self.method, self.task.rpartition(":")[2], self.arm, f"s{self.seed}"))
        return f"{re.sub(r'[^A-Za-z0-9.]+', '-', words)}-{self.config_hash[:8]}"


def read_study(file: Path) -> Study:
    """Read a study from a TOML or JSON file.

    Raises:
        StudyError: if it cannot be read, or breaks the rules of its tier.
        ValueError: for unknown names, with the nearest known one.
    """
    if not file.is_file():
        what = "is a folder or device" if file.exists() else "does not exist"
        raise StudyError(f"{file} {what}: give a TOML or JSON file")
    form, read = ("JSON", json.loads) if file.suffix == ".json" else ("TOML", tomllib.loads)
    try:
        content = read(file.read_text(encoding="utf-8"))
    except ValueError as error:  # no text, or no such text
        raise StudyError(f"{file} is not {form}: {error}") from error
    except OSError as error:
        raise StudyError(f"{file} cannot be read ({error.strerror}): give a TOML or JSON file") from error
    if not content:
        raise StudyError(f"{file} is empty: docs/study.md shows what a study holds")
    return from_dict(Study, content)


def study_folder(folder: Path) -> Path:
    """Make a folder that a study writes to, before anything is computed for it.

    Raises:
        StudyError: if it cannot be made or written.
    """
    try:
        return writable_folder(folder)
    except ValueError as error:
        raise StudyError(f"{error}: name another folder in the study's file") from error


def _check_episodes(study: Study) -> None:
    try:
        check_episodes(study.episodes)
    except ValueError as error:
        raise StudyError(str(error)) from error
    if study.first_seed < 0:
        raise StudyError(f"first_seed is {study.first_seed}, allowed is 0 or more")
    if used := trained_on(range(study.first_seed, study.first_seed + study.episodes)):
        raise StudyError(
            f"first_seed is {study.first_seed}, but {used}: choose a lower one, so that seeds are held out"
        )


def _refuse_shared_files(study: Study) -> None:
    """Names that differ in punctuation alone are one file name."""
    ids = [cell.id for cell in cells(study)]
    if twice := sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise StudyError(
            f"cells {twice} would share a file: give methods and arms names that differ in letters or digits"
        )


def cells(study: Study) -> list[Cell]:
    """Every cell of a study, seeds last, so that an unfinished study has whole comparisons."""
    grid = itertools.product(study.seeds, study.tasks, study.methods, study.arms)
    return [
        Cell(
            study=study.name,
            method=method.name,
            run=method.run,
            task=task.name,
            options=task.options,
            arm=arm.name,
            control=arm.control,
            parameters={**method.parameters, **arm.parameters},
            seed=seed,
            episodes=study.episodes,
            first_seed=study.first_seed,
        )
        for seed, task, method, arm in grid
        if arm.applies_to(method.name)
    ]
