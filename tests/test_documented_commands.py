"""Every command that the README and the documentation show is one that the command line accepts."""

from __future__ import annotations

import re
import shlex

import pytest

from robot_rl import cli
from robot_rl.cli import parsing
from tests.conftest import REPOSITORY


class Accepted(BaseException):
    """The words were read into a configuration; nothing needs to run."""


def documented() -> list[str]:
    """Every line of an indented block that calls robot-rl, once."""
    pages = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")]
    found: dict[str, None] = {}
    for page in pages:
        text = page.read_text().replace("\\\n", "")  # a long command goes on in the next line
        for line in re.findall(r"^ {4}(?:\.venv/bin/)?robot-rl +(.+)$", text, re.MULTILINE):
            found[" ".join(line.split())] = None
    return list(found)


@pytest.mark.parametrize("words", documented())
def test_a_documented_command_is_accepted(words, monkeypatch):
    read = parsing.tyro.cli

    def only_read(*arguments, **options):
        read(*arguments, **options)
        raise Accepted

    monkeypatch.setattr(parsing.tyro, "cli", only_read)
    with pytest.raises(Accepted):
        cli.main(shlex.split(words))


def test_commands_are_documented_at_all():
    assert {words.split()[0] for words in documented()} == set(cli.COMMANDS)
