"""The boundary table in words, for people."""

from __future__ import annotations

from data.labels.rule import Cell, Imitate, Indicator, Region
from data.labels.table import TABLE

_IMITATE = {
    Imitate.YES: "imitate",
    Imitate.GATE: "imitate by the gate, if it succeeded",
    Imitate.CLASS: "imitate progress and recovery",
    Imitate.SUCCESS: "imitate, if it succeeded",
}
_INDICATOR = {Indicator.ADVANTAGE: "indicator by advantage", Indicator.FORCED: "indicator 1"}
_PREFERENCE = {0: "undesirable", 1: "desirable", 2: "desirable, a person's"}
_COLUMNS = (Region.EARLY, Region.LAST, Region.HUMAN, Region.AFTER, Region.DEMO, Region.AUTONOMOUS)


def describe(cell: Cell) -> str:
    """What a method makes of the steps of a region, in words; a dash where it drops them."""
    if cell.cut:
        return "the episode ends here"
    critic = "critic, in both halves" if cell.critic and cell.online and cell.prior else "critic"
    words = [
        _IMITATE.get(cell.imitate, ""),
        critic if cell.critic else "",
        "outcome" if cell.viability else "",
        "time to success" if cell.progress else "",
        _INDICATOR.get(cell.indicator, ""),
        _PREFERENCE.get(cell.preference, ""),
    ]
    return "; ".join(word for word in words if word) or "-"


def markdown_table() -> str:
    """The table, one line per method."""
    lines = ["| rule | " + " | ".join(_COLUMNS) + " |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for rule in TABLE.values():
        cells = " | ".join(describe(rule.cells[region]) for region in _COLUMNS)
        lines.append(f"| `{rule.name}` ({rule.title}) | {cells} |")
    return "\n".join(lines)
