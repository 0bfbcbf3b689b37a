"""``robot-rl data recover``: what is left of recordings that were not finished."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from robot_rl.cli import unknown
from robot_rl.cli.data_bar import inside
from robot_rl.cli.output import say
from robot_rl.cli.parsing import UsageError, parse
from robot_rl.progress import stage
from robot_rl.result_file import check_result_file, write_result_file

if TYPE_CHECKING:
    from data.recording.intake import Partial
    from data.store import EpisodeStore


@dataclass(frozen=True)
class RecoverConfig:
    """List recordings that were not finished, and make episodes of those that are named.

    A file of the store itself that is lost or damaged is made again first, from what the episodes repeat.
    An episode that is recovered has the outcome unknown and ends with the last step that is whole.
    """

    store: tyro.conf.Positional[Path]
    """the episode store, or a run with one"""
    id: tuple[str, ...] = ()
    """recordings to recover; without, they are only listed"""
    all: bool = False
    """recover all of them"""
    discard: bool = False
    """remove those that are named instead"""
    json: Path | None = None
    """write what there was, and what became of it, for other programs"""


def _recover(words: list[str]) -> int:
    from data.root_repair import repair_root
    from data.store import EpisodeStore

    config = parse(RecoverConfig, words, "data recover")
    check_result_file(config.json)
    if config.discard and not (config.id or config.all):
        raise UsageError("data recover --discard needs --id, or --all for every recording")
    path = inside(config.store)
    for note in repair_root(path):
        say(("repaired", "bold yellow"), f" {note}")
    store = EpisodeStore(path)
    partials = store.partials()
    known = [partial.id for partial in partials]
    for id_ in config.id:
        if id_ not in known:
            none = f"there is no recording {id_!r}: all were finished"
            raise UsageError(unknown("recording", id_, known) if known else none)
    chosen = known if config.all else list(dict.fromkeys(config.id))
    _show(partials)
    steps = {partial.id: partial.steps for partial in partials if partial.id in chosen}
    done, failed = _settle(store, steps, discard=config.discard)
    write_result_file(
        config.json, {"partial": [asdict(partial) for partial in partials], "done": done, "failed": failed}
    )
    for id_, what in done.items():
        say(f"{id_}: {what}")
    for id_, error in failed.items():
        say((f"{id_} stays", "bold red"), f" {error}")
    if partials and not chosen:
        say("nothing was changed: --id or --all recovers, with --discard it removes")
    return 1 if failed else 0


def _settle(
    store: "EpisodeStore", steps: Mapping[str, int], *, discard: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Recover or remove recordings; what became of each, and why the others stay."""
    from data.errors import StoreError

    done: dict[str, str] = {}
    failed: dict[str, str] = {}
    if not steps:
        return done, failed
    with stage("Removing" if discard else "Recovering", len(steps)) as reporter:
        for id_, known in steps.items():
            try:
                if discard:
                    store.discard(id_)
                    done[id_] = "removed"
                else:
                    whole = len(store.recover(id_))
                    lost = f"; pictures of {known - whole} more are damaged" if whole < known else ""
                    done[id_] = f"an episode of {whole} steps{lost}"
            except StoreError as error:
                failed[id_] = str(error)
            reporter.advance()
    return done, failed


def _show(partials: Sequence["Partial"]) -> None:
    if not partials:
        say("every recording was finished")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("recording", "steps", "last written", "why there is no more"):
        table.add_column(column, overflow="fold", justify="right" if column == "steps" else "left")
    for one in partials:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.when))
        table.add_row(escape(one.id), str(one.steps), when, escape(one.because))
    Console().print(table)


COMMANDS: dict[str, Callable[[list[str]], int]] = {"recover": _recover}
