"""Labels that methods learn from, derived from recorded facts by one table."""

from data.labels.interpret import CLASSES, imitation_actions, label
from data.labels.render import markdown_table
from data.labels.result import Labels, count
from data.labels.rule import Cell, Imitate, Indicator, Region, Rule
from data.labels.segments import Segment, segments
from data.labels.table import TABLE, find_rule

__all__ = [
    "CLASSES",
    "TABLE",
    "Cell",
    "Imitate",
    "Indicator",
    "Labels",
    "Region",
    "Rule",
    "Segment",
    "count",
    "find_rule",
    "imitation_actions",
    "label",
    "markdown_table",
    "segments",
]
