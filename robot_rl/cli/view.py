"""``robot-rl view``: a recorded episode in rerun."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse


@dataclass(frozen=True)
class ViewConfig:
    """Open a recorded episode in rerun, or write it as a recording."""

    episode: tyro.conf.Positional[Path]
    """folder of an episode; a store, a run or a data set of any other format: its first episode"""
    id: str = ""
    """which episode of it instead"""
    format: str | None = None
    """its format; recognised by its content by default"""
    read: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """options of the format's reader"""
    critic: Path | None = None
    """run of a refinement, or another folder with a critic, whose values of the actions are drawn too"""
    out: Path | None = None
    """write the recording (.rrd) there instead of opening a window; always without a display"""


def run(words: list[str]) -> int:
    """Write or open the recording."""
    config = parse(ViewConfig, words, "view")
    from robot_rl.critics.curves import open_critic
    from robot_rl.find_episode import read_episode
    from robot_rl.view import open_viewer, write_recording

    episode = read_episode(config.episode, config.id, config.format, config.read)
    values = open_critic(config.critic).value_curves(episode) if config.critic else None
    out = config.out
    if out is None and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        out = Path("outputs/view") / f"{episode.id}.rrd"
    if out is None:
        open_viewer(episode, values)
    else:
        path = write_recording(episode, out, values)
        say(f"{path}\nopen it with: rerun {path}")
    return 0
