"""The ``robot-rl`` command. Sub-commands are imported when they are called, so that ``--help`` is instant.

Exit codes: 0 done, 1 failed (one line on standard error says why), 2 the command line is wrong, 130 Ctrl-C.
"""

import importlib
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from data.errors import StoreError
from data.hints import did_you_mean
from robot_rl.threads import limit_threads


class _Command(NamedTuple):
    module: str
    summary: str


COMMANDS = {
    "demo": _Command(
        "robot_rl.cli.demo", "collect, train, refine, evaluate and report peg insertion: the whole job"
    ),
    "collect": _Command("robot_rl.cli.collect", "record demonstrations of a scripted expert"),
    "train": _Command("robot_rl.cli.train", "train a base policy by behaviour cloning"),
    "refine": _Command("robot_rl.cli.refine", "refine a frozen base policy"),
    "evaluate": _Command("robot_rl.cli.evaluate", "measure success rates on held-out seeds"),
    "serve": _Command("robot_rl.cli.serve", "run a policy for robots and programs elsewhere"),
    "export": _Command("robot_rl.cli.export", "write a refined policy as a LeRobot policy"),
    "study": _Command("robot_rl.cli.study", "run a grid of experiments, or make tables and figures of it"),
    "report": _Command("robot_rl.cli.report", "write one self-contained HTML page about a run"),
    "data": _Command(
        "robot_rl.cli.data", "look at data sets; check, convert, label, split, merge, prune them"
    ),
    "view": _Command("robot_rl.cli.view", "open a recorded episode in rerun"),
    "doctor": _Command("robot_rl.cli.doctor", "say what works here and what is missing"),
}

_RESUME = "the same command with --resume goes on from the last checkpoint"
_AFTER_CTRL_C = {
    **dict.fromkeys(("demo", "collect", "train", "refine"), _RESUME),
    "study": "the same command goes on; finished cells are kept",
}
_OTHERWISE = "nothing half written counts, so the same command can be called again"

# What callers can cause. Anything else is our mistake and is shown with its traceback.
EXPECTED_ERRORS = (ValueError, TypeError, OSError, ImportError, RuntimeError, StoreError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: words after ``robot-rl``; None takes them from the process.

    Returns:
        the exit code.
    """
    for stream in (sys.stdout, sys.stderr):  # a name that is no Unicode is shown with escapes, and no end
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has left, as `head` does; nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that exiting flushes elsewhere
        return 1
    return code


def unknown(kind: str, name: str, known: Sequence[str] | dict[str, _Command]) -> str:
    """One line that names an unknown word and the nearest known ones."""
    hint = did_you_mean(name, known, f"choose from {', '.join(known)}", most=2, likeness=0.5, quoted=False)
    return f"unknown {kind} {name!r}: {hint}"


def _main(arguments: Sequence[str] | None) -> int:
    limit_threads()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if not words or words[0] in {"-h", "--help", "help"}:
        sys.stdout.write(_help())
        return 0
    if words[0] == "--version":
        from robot_rl.provenance import versions

        sys.stdout.write(f"robot-rl {versions()['robot-rl']}\n")
        return 0
    if words[0] not in COMMANDS:
        return _fail(unknown("command", words[0], COMMANDS), 2)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for ours in ("data", "hardware", "policies", "robot_rl", "sim"):
        logging.getLogger(ours).setLevel(logging.DEBUG if debug else logging.INFO)
    return _run(words[0], words[1:], debug=debug)


def _run(name: str, words: list[str], *, debug: bool) -> int:
    try:
        run: Callable[[list[str]], int] = importlib.import_module(COMMANDS[name].module).run
        return run(words)
    except SystemExit as stop:  # tyro ends the process after help and after errors in the command line
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        return _fail(f"stopped by Ctrl-C; {_AFTER_CTRL_C.get(name, _OTHERWISE)}", 130)
    except EXPECTED_ERRORS as error:
        if debug:
            raise
        return _fail(" ".join(str(error).split()) or type(error).__name__, 1)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"robot-rl: {message}\n")
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"    {name.ljust(width)}  {command.summary}" for name, command in COMMANDS.items()]
    return (
        "usage: robot-rl COMMAND [options]\n\n"
        "Refine a frozen robot policy until it works nearly always, without touching its weights.\n\n"
        + "\n".join(lines)
        + "\n\nrobot-rl COMMAND --help shows the options. --debug shows where an error comes from.\n"
    )
