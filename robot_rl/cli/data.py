"""``robot-rl data``: look at data sets, check, convert, label, split, merge and prune them."""

import importlib
from collections.abc import Callable, Mapping

from robot_rl.cli.parsing import split_word

MODULES: Mapping[str, str] = {
    "info": "data_look",
    "validate": "data_look",
    "convert": "data_write",
    "label": "data_write",
    "split": "data_edit",
    "merge": "data_edit",
    "prune": "data_edit",
    "recover": "data_recover",
    "html": "data_edit",
}
"""Module of each sub-command, imported when it is called."""
SUMMARIES: Mapping[str, str] = {
    "info": "say what a data set holds",
    "validate": "find what is wrong with it, and where",
    "convert": "write it in another format",
    "label": "derive the labels that a learning method needs",
    "split": "distribute its episodes over new stores",
    "merge": "put several data sets into one new store",
    "prune": "make room: remove episodes that also exist elsewhere",
    "recover": "list recordings that were not finished; make episodes of them or remove them",
    "html": "write one self-contained page about it",
}


def run(words: list[str]) -> int:
    """Run one of the sub-commands."""
    action, rest = split_word(words, "data", "sub-command", SUMMARIES)
    commands: Mapping[str, Callable[[list[str]], int]]
    commands = importlib.import_module(f"robot_rl.cli.{MODULES[action]}").COMMANDS
    return commands[action](rest)
