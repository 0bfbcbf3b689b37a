"""``robot-rl view``: a recorded episode in rerun."""

import os
from dataclasses import dataclass
from pathlib import Path

import tyro

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse


@dataclass(frozen=True)
class ViewConfig:
    """Open a recorded episode in rerun, or write it as a recording."""

    episode: tyro.conf.Positional[Path]
    """folder of an episode; of a store or a run: its first episode"""
    out: Path | None = None
    """write the recording (.rrd) there instead of opening a window; always without a display"""


def run(words: list[str]) -> int:
    """Write or open the recording."""
    config = parse(ViewConfig, words, "view")
    from robot_rl.view import find_episode, open_viewer, write_recording

    store, name = find_episode(config.episode)
    out = config.out
    if out is None and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        out = Path("outputs/view") / f"{name}.rrd"
    if out is None:
        open_viewer(store.read(name))
    else:
        path = write_recording(store.read(name), out)
        say(f"{path}\nopen it with: rerun {path}")
    return 0
