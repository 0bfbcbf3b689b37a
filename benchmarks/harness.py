"""What every benchmark shares: timing in interleaved turns, the machine's description, printing and JSON.

Contestants take turns (`measure`), so that a busy neighbour or a hot processor slows all of them alike, and
a figure is the median over the turns. Two clocks run: wall time, and the processor time of this process,
which is what one core to itself would give and hardly moves when other programs run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGES = (
    "numpy",
    "mujoco",
    "gymnasium",
    "torch",
    "zarr",
    "h5py",
    "robosuite",
    "lerobot",
    "stable-baselines3",
    "diffusers",
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")


class Stopwatch:
    """Adds up wall and processor seconds over the stretches inside `with stopwatch:`; resets stay outside."""

    def __init__(self) -> None:
        self.wall = 0.0
        self.cpu = 0.0

    def __enter__(self) -> None:
        self._wall_start, self._cpu_start = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self._wall_start
        self.cpu += time.process_time() - self._cpu_start


@dataclass(frozen=True)
class Contestant:
    """Something to time.

    Attributes:
        name: how the figure is called.
        turn: does the work once, the timed part inside `with stopwatch:`, and returns how many units it did.
        unit: what a unit is, in the singular (`control step`).
        peer: name of the contestant to compare with, or None.
        settings: whatever a reader needs in order to repeat the measurement.
    """

    name: str
    turn: Callable[[Stopwatch], int]
    unit: str
    peer: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """One measured figure: units per second on either clock (medians), and every turn behind them.

    Attributes:
        ratio: `per_second` on the chosen clock over the peer's; above 1 means faster than the peer.
    """

    name: str
    unit: str
    clock: Literal["cpu", "wall"]
    per_second: float
    per_second_cpu: float
    per_second_wall: float
    turns_cpu: tuple[float, ...]
    turns_wall: tuple[float, ...]
    peer: str | None
    ratio: float | None
    settings: Mapping[str, Any]

    def line(self) -> str:
        """The figure as one line for people; slow units are given as milliseconds each."""
        text = f"{self.name}: {_amount(self.per_second, self.unit)} of {self.clock} time"
        spread = sorted(self.turns_cpu if self.clock == "cpu" else self.turns_wall)
        text += f" (turns {spread[0]:.4g} to {spread[-1]:.4g} per s"
        text += f"; wall {self.per_second_wall:.4g})" if self.clock == "cpu" else ")"
        return text + (f"  {self.ratio:.2f} x {self.peer}" if self.ratio is not None else "")


def measure(
    contestants: Sequence[Contestant],
    *,
    repeats: int,
    warmup: int = 1,
    clock: Literal["cpu", "wall"] = "cpu",
) -> list[Figure]:
    """Times the contestants in turns.

    Args:
        contestants: with distinct names; a `peer` must be the name of another one, or it is not compared.
        repeats: timed turns of each.
        warmup: turns of each before timing starts.
        clock: which clock `per_second` and `ratio` are taken from.

    Raises:
        ValueError: when `repeats` is below 1 or a turn reports no work.
    """
    if repeats < 1 or warmup < 0:
        raise ValueError(
            f"repeats={repeats}, warmup={warmup}: need at least 1 repeat and no negative warm-up"
        )
    rates: dict[str, list[tuple[float, float]]] = {each.name: [] for each in contestants}
    for turn in range(warmup + repeats):
        for each in contestants:
            stopwatch = Stopwatch()
            count = each.turn(stopwatch)
            if count < 1 or stopwatch.wall <= 0.0:
                raise ValueError(
                    f"{each.name}: {count} units in {stopwatch.wall} s; a turn must do timed work"
                )
            if turn >= warmup:
                rates[each.name].append((count / max(stopwatch.cpu, 1e-9), count / stopwatch.wall))
    medians = {
        name: {"cpu": statistics.median(c for c, _ in turns), "wall": statistics.median(w for _, w in turns)}
        for name, turns in rates.items()
    }
    return [_figure(each, rates[each.name], medians, clock) for each in contestants]


@dataclass(frozen=True)
class Share:
    """What one part of a repeated step costs, in processor time.

    Attributes:
        ratio: `milliseconds` over those of the whole step.
    """

    name: str
    whole: str
    milliseconds: float
    ratio: float

    def line(self) -> str:
        """The part as one line for people."""
        return f"{self.name}: {self.milliseconds:.3f} ms, {100 * self.ratio:.1f} % of {self.whole}"


@dataclass(frozen=True)
class Amount:
    """Something measured that is no rate with a peer.

    Attributes:
        text: for people.
        values: by name, with the unit in the name.
    """

    name: str
    text: str
    values: Mapping[str, Any]

    def line(self) -> str:
        """The amount as one line for people."""
        return f"{self.name}: {self.text}"


class PartClock:
    """Adds up the processor time of named calls, so that what a step is made of can be told.

    Attributes:
        seconds: by part.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, owner: object, attribute: str, part: str) -> None:
        """Replaces a function of an object or module by one that counts its time to `part`."""
        inner = getattr(owner, attribute)

        def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the function takes
            start = time.process_time()
            try:
                return inner(*arguments, **named)
            finally:
                self.seconds[part] = self.seconds.get(part, 0.0) + time.process_time() - start

        setattr(owner, attribute, timed)

    def shares(self, whole: str, seconds: float, steps: int) -> list[Share]:
        """Returns the whole step, its watched parts and the rest, per step.

        Args:
            whole: what a step is called.
            seconds: processor time of all the steps.
            steps: how many there were.
        """
        parts = {**self.seconds, "everything else": seconds - sum(self.seconds.values())}
        return [
            Share(f"{whole}, {name}", whole, 1000.0 * spent / steps, spent / seconds)
            for name, spent in {"whole": seconds, **parts}.items()
        ]


def machine() -> dict[str, Any]:
    """Processor, cores, load, thread settings and versions of the packages involved (installed ones only)."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average_1min": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "threads": {name: os.environ.get(name) for name in THREAD_VARIABLES},
        "versions": versions,
    }


def parser(description: str, *, repeats: int = 5) -> argparse.ArgumentParser:
    """The command line every benchmark has: `--json FILE` and `--repeats N`."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the machine here")
    made.add_argument("--repeats", type=int, default=repeats, help="timed turns of each contestant")
    return made


def publish(
    benchmark: str,
    figures: Sequence[Figure | Share | Amount],
    *,
    skipped: Mapping[str, str] | None = None,
    json_path: Path | None,
) -> None:
    """Prints one line per figure and per skipped peer, and writes the JSON when asked.

    Args:
        benchmark: name of the benchmark.
        figures: from `measure` or `shares`.
        skipped: peers that could not run, with the reason.
        json_path: where to write, or None.
    """
    for figure in figures:
        print(figure.line())
    skipped = dict(skipped or {})
    for name, reason in skipped.items():
        print(f"{name}: skipped, {reason}")
    if json_path is None:
        return
    content = {
        "benchmark": benchmark,
        "figures": [asdict(figure) for figure in figures],
        "skipped": skipped,
        "machine": machine(),
    }
    json_path.parent.mkdir(parents=True, exist_ok=True)
    temporary = json_path.with_name(json_path.name + ".part")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(json_path)


def _figure(
    contestant: Contestant,
    turns: Sequence[tuple[float, float]],
    medians: Mapping[str, Mapping[str, float]],
    clock: Literal["cpu", "wall"],
) -> Figure:
    own = medians[contestant.name]
    peer = contestant.peer if contestant.peer in medians else None
    return Figure(
        name=contestant.name,
        unit=contestant.unit,
        clock=clock,
        per_second=own[clock],
        per_second_cpu=own["cpu"],
        per_second_wall=own["wall"],
        turns_cpu=tuple(cpu for cpu, _ in turns),
        turns_wall=tuple(wall for _, wall in turns),
        peer=peer,
        ratio=None if peer is None else own[clock] / medians[peer][clock],
        settings=dict(contestant.settings),
    )


def _amount(per_second: float, unit: str) -> str:
    if per_second >= 10.0:
        return f"{per_second:,.0f} {unit}s per s"
    return f"{1000.0 / per_second:,.1f} ms per {unit}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for row in information.read_text().splitlines():
            if row.startswith("model name"):
                return row.partition(":")[2].strip()
    return platform.processor() or "unknown"
