"""From words of the command line to a configuration dataclass."""

import dataclasses
import sys
import typing
from collections.abc import Iterator

import tyro

from robot_rl.cli import unknown


class UsageError(SystemExit):
    """The command line is wrong; ends the process with exit code 2 after one line on standard error."""

    def __init__(self, message: str) -> None:
        sys.stderr.write(f"robot-rl: {message}\n")
        super().__init__(2)


def parse[Config](config_class: type[Config], words: list[str], command: str) -> Config:
    """Read a configuration from the command line with tyro.

    Args:
        config_class: a configuration dataclass; its docstrings become the help.
        words: what follows the command.
        command: name of the command, for example ``study run``.

    Raises:
        UsageError: for an unknown option, with the nearest known one.
        SystemExit: after ``--help``, and for what tyro refuses.
        ValueError: for values the configuration refuses.
    """
    known = {"--help", *flags(config_class)}
    for word in words:
        flag = word.split("=", 1)[0].replace("_", "-")
        if flag.startswith("--") and flag not in known:
            raise UsageError(
                unknown("option", flag, sorted(known)) + f" (robot-rl {command} --help lists all)"
            )
    return tyro.cli(config_class, args=words, prog=f"robot-rl {command}")


def flags(config_class: type, prefix: str = "") -> Iterator[str]:
    """Option names of a configuration dataclass; nested ones as ``--learner.width``."""
    hints = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        name = f"{prefix}{field.name.replace('_', '-')}"
        kind = hints[field.name]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from flags(kind, f"{name}.")
        yield f"--{name}"
        if kind is bool:
            yield f"--{prefix}no-{field.name.replace('_', '-')}"


def split_word(
    words: list[str], command: str, what: str, choices: typing.Mapping[str, str]
) -> tuple[str, list[str]]:
    """Take a leading word (a method, a sub-command) off the command line.

    Args:
        words: what follows the command.
        command: name of the command.
        what: what the word is.
        choices: the words that are known, and what each does.

    Returns:
        the word and what follows it.

    Raises:
        UsageError: if it is missing or unknown.
    """
    known = list(choices)
    if not words or words[0] in {"-h", "--help"}:
        width = max(map(len, known))
        usage = (
            f"usage: robot-rl {command} {what.upper()} [options]\n\n"
            + "".join(f"    {name.ljust(width)}  {does}\n" for name, does in choices.items())
            + f"\nrobot-rl {command} {what.upper()} --help shows the options.\n"
        )
        (sys.stdout if words else sys.stderr).write(usage)
        raise SystemExit(0 if words else 2)
    if words[0] not in known:
        raise UsageError(unknown(what, words[0], known))
    return words[0], words[1:]
