from robot_rl.report.page import Page, seed_grid, table
from robot_rl.report.plots import Curve, Rate, curves, rates, running_mean


def test_texts_are_escaped_and_nothing_is_loaded_from_elsewhere():
    page = Page("a < b", "1 & 2", "x > y")
    page.section("<script>", "note")
    page.numbers([("5 <", "of 6", "base")])
    page.folded("more", {"key": "<b>"})
    text = page.render("end")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<h1>1 &amp; 2</h1>" in text
    assert "http" not in text


def test_a_table_sets_figures_flush_right():
    assert '<td>arm</td><td class="figure">1</td>' in table(("name", "n"), [("arm", "1")])


def test_the_seed_grid_counts_each_kind_of_pair():
    grid = seed_grid([True, False, False, True, False], [True, True, True, False, False])
    for words in ("only after: 2", "before and after: 1", "only before: 1", "never: 1"):
        assert words in grid
    assert grid.count("<i ") == 5 + 4


def test_plots_take_their_colours_from_the_page():
    drawing = rates([Rate("base", 0.3, (0.2, 0.4), "base"), Rate("refined", 0.9, (0.85, 0.95))])
    assert "var(--base)" in drawing
    assert "var(--refined)" in drawing
    assert "#0" not in drawing.replace('href="#', "")
    assert "30.0 %" in drawing


def test_two_plots_on_a_page_share_no_identifiers():
    marks = [
        {
            part.split('"')[0]
            for part in curves([Curve("", [0, 1], y)], x_label="x", y_label="y").split('id="')[1:]
        }
        for y in ([0, 1], [1, 0])
    ]
    assert not marks[0] & marks[1]


def test_the_running_mean_uses_what_there_is_at_the_start():
    assert running_mean([1.0, 3.0, 5.0, 7.0], 2).tolist() == [1.0, 2.0, 4.0, 6.0]
