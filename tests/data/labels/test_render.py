from pathlib import Path

from data.labels import TABLE, markdown_table
from data.labels.render import describe
from data.labels.rule import Cell, Imitate, Indicator, Region

PAGE = Path(__file__).resolve().parents[3] / "docs" / "labels.md"


def test_the_page_shows_the_table_as_it_is():
    assert markdown_table() in PAGE.read_text()


def test_words_say_what_a_cell_does():
    assert describe(Cell()) == "-"
    assert describe(TABLE["rac"].cells[Region.AFTER]) == "the episode ends here"
    assert describe(TABLE["hil-serl"].cells[Region.HUMAN]) == "critic, in both halves"
    cell = Cell(imitate=Imitate.YES, indicator=Indicator.FORCED, preference=0)
    assert describe(cell) == "imitate; indicator 1; undesirable"


def test_cells_that_differ_for_a_learner_differ_in_words():
    cells = {cell for rule in TABLE.values() for cell in rule.cells.values()}
    told = {(describe(cell), cell.online, cell.prior) for cell in cells}
    assert len(told) == len(cells)
