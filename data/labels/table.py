"""What each method makes of the steps around a takeover, as data.

One episode reads ``P0 P1 | H | P2``: the policy, its last K steps before a person took over, the person, and
the policy again after the last hand-back. An episode of which the policy did all is a case of its own, since
two methods treat it apart. `data.labels.label` interprets this table and holds no rule about a method itself.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from data.hints import did_you_mean
from data.labels.rule import Cell, Imitate, Indicator, Region, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

_DROPPED = Cell()
_IMITATED = Cell(imitate=Imitate.YES, online=True)
_DEMONSTRATED = Cell(imitate=Imitate.YES, prior=True)
_REPLAYED = Cell(critic=True, online=True)
_CLASSED = Cell(imitate=Imitate.CLASS, online=True)
_JUDGED = Cell(imitate=Imitate.YES, critic=True, online=True, indicator=Indicator.ADVANTAGE)
_GATED = Cell(imitate=Imitate.GATE, progress=True, online=True)
_GATED_AND_LABELLED = Cell(imitate=Imitate.GATE, progress=True, viability=True, online=True)
_BOTH_TERMS = Cell(imitate=Imitate.YES, critic=True, online=True)


def _rule(
    name: str,
    title: str,
    source: str,
    cells: tuple[Cell, Cell, Cell, Cell, Cell],
    *,
    autonomous: Cell | None = None,
    rewind: bool = False,
) -> Rule:
    """Row with cells in the order P0, P1, H, P2, demos; an autonomous episode is like P0 unless said."""
    order = (Region.EARLY, Region.LAST, Region.HUMAN, Region.AFTER, Region.DEMO)
    all_cells = dict(zip(order, cells, strict=True)) | {Region.AUTONOMOUS: autonomous or cells[0]}
    return Rule(name=name, title=title, source=source, cells=all_cells, rewind=rewind)


TABLE: Mapping[str, Rule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            _rule(
                "hg-dagger",
                "HG-DAgger",
                "Kelly et al. 2019, arXiv 1810.02890",
                (_DROPPED, _DROPPED, _IMITATED, _DROPPED, _DEMONSTRATED),
            ),
            _rule(
                "hil-serl",
                "HIL-SERL, RLPD",
                "Luo et al. 2024, arXiv 2410.21845; Ball et al. 2023, arXiv 2302.02948",
                (
                    _REPLAYED,
                    _REPLAYED,
                    Cell(critic=True, online=True, prior=True),
                    _REPLAYED,
                    Cell(critic=True, prior=True),
                ),
            ),
            _rule(
                "lwd",
                "LWD",
                "arXiv 2605.00416",
                (_REPLAYED, _REPLAYED, _REPLAYED, _REPLAYED, Cell(critic=True, prior=True)),
            ),
            _rule(
                "habc",
                "HABC",
                "arXiv 2606.17043",
                (
                    _GATED,
                    _GATED,
                    Cell(imitate=Imitate.YES, progress=True, online=True),
                    _GATED_AND_LABELLED,
                    Cell(imitate=Imitate.YES, progress=True, prior=True),
                ),
                autonomous=_GATED_AND_LABELLED,
            ),
            _rule(
                "recap",
                "RECAP",
                "arXiv 2511.14759",
                (
                    _JUDGED,
                    _JUDGED,
                    Cell(imitate=Imitate.YES, critic=True, online=True, indicator=Indicator.FORCED),
                    _JUDGED,
                    Cell(imitate=Imitate.YES, critic=True, prior=True, indicator=Indicator.FORCED),
                ),
            ),
            _rule(
                "sop",
                "SOP with HG-DAgger",
                "arXiv 2601.03044",
                (_DROPPED, _DROPPED, _IMITATED, _DROPPED, _DEMONSTRATED),
            ),
            _rule(
                "help",
                "HELP",
                "arXiv 2607.09776",
                (_CLASSED, _CLASSED, _IMITATED, _CLASSED, _DEMONSTRATED),
            ),
            _rule(
                "rac",
                "RaC",
                "arXiv 2509.07953",
                (_DROPPED, _DROPPED, _IMITATED, Cell(cut=True), _DEMONSTRATED),
                autonomous=Cell(imitate=Imitate.SUCCESS, online=True),
                rewind=True,
            ),
            _rule(
                "apo",
                "APO",
                "arXiv 2506.07127",
                (
                    Cell(preference=1, online=True),
                    Cell(preference=0, online=True),
                    Cell(preference=2, online=True),
                    Cell(preference=1, online=True),
                    Cell(preference=1, prior=True),
                ),
            ),
            _rule(
                "conrft",
                "ConRFT",
                "arXiv 2502.05450",
                (
                    _BOTH_TERMS,
                    _BOTH_TERMS,
                    Cell(imitate=Imitate.YES, critic=True, online=True, prior=True),
                    _BOTH_TERMS,
                    Cell(imitate=Imitate.YES, critic=True, prior=True),
                ),
            ),
            _rule(
                "thrifty-dagger",
                "ThriftyDAgger",
                "Hoque et al. 2021, arXiv 2109.08273",
                (
                    _REPLAYED,
                    _REPLAYED,
                    Cell(imitate=Imitate.YES, critic=True, online=True),
                    _REPLAYED,
                    Cell(imitate=Imitate.YES, critic=True, prior=True),
                ),
            ),
        )
    }
)
"""The table: a rule by its name."""

_ALIASES = {"rlpd": "hil-serl", "hg": "hg-dagger", "thrifty": "thrifty-dagger", "hilserl": "hil-serl"}


def find_rule(name: str | Rule) -> Rule:
    """A rule by name; underscores and capitals are forgiven, and a rule of your own passes through.

    Raises:
        KeyError: There is no such rule; names the nearest ones.
    """
    if isinstance(name, Rule):
        return name
    wanted = name.lower().replace("_", "-")
    wanted = _ALIASES.get(wanted, wanted)
    if wanted not in TABLE:
        known = f"known: {', '.join(TABLE)}"
        raise KeyError(f"There is no labelling rule {name!r}; {did_you_mean(wanted, TABLE, known)}")
    return TABLE[wanted]
