import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from data.formats.registry import load
from robot_rl.report.store_page import write_store_page
from robot_rl.report.strips import Line, segment_bar, strip, thumbnail
from tests.data.stores import robots_store
from tests.data.validate import robot
from tests.robot_rl.countdown import save_countdown


class Tags(HTMLParser):
    """Opened elements, and whether each that was opened was closed in its order."""

    VOID = frozenset({"meta", "img", "line", "rect", "polyline", "br"})

    def __init__(self):
        super().__init__()
        self.seen = []
        self.open = []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def count(self, tag, **attributes):
        return sum(t == tag and all(a.get(k) == v for k, v in attributes.items()) for t, a in self.seen)


def parsed(text):
    tags = Tags()
    tags.feed(text)
    assert not tags.open
    return tags


@pytest.fixture
def store(tmp_path):
    made = robots_store(tmp_path / "s")
    outcomes = ("success", "failure", "unknown")
    for seed, outcome in enumerate(outcomes):
        episode = robot.episode(f"a-{seed}", steps=20, seed=seed, outcome=outcome, task="<wave> & go")
        made.write(
            replace(episode, source=np.repeat(["policy", "human"], 10), segment_id=np.arange(20) // 10)
        )
    return made


def test_the_page_shows_every_episode_and_needs_nothing_else(store, tmp_path):
    page = write_store_page(store.path, tmp_path / "deep/page.html")
    text = page.read_text()
    tags = parsed(text)
    assert tags.count("details", **{"class": "episode"}) == 3
    assert tags.count("img") == 3 * 5
    assert tags.count("svg", **{"class": "bar"}) == 3
    assert tags.count("figure", **{"class": "strip"}) == 3 * (3 + 2)
    assert "3 episodes: 1 succeeded, 1 failed, 1 not judged" in text
    assert "&lt;wave&gt; &amp; go" in text
    assert "<wave>" not in text
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)
    assert "<script" not in text


def test_values_of_a_critic_are_drawn_and_an_episode_without_says_why(store, tmp_path):
    store.write(replace(robot.episode("a-3", steps=20), source=np.repeat("demo", 20)))
    critic = save_countdown(tmp_path / "critic")
    text = write_store_page(store.path, tmp_path / "page.html", critic=critic).read_text()
    parsed(text)
    assert text.count("value, left: 0.0675 to 1") == 3
    assert text.count('Value: <i class="soft">base action</i>') == 3
    assert text.count("No values: Episode a-3 has no &lt;policy&gt;.") == 1


def test_findings_lead_to_their_episode_and_damaged_ones_are_listed(store, tmp_path):
    next((store.path / "a-1/steps").rglob("c.0*")).unlink()
    text = write_store_page(store.path, tmp_path / "page.html").read_text()
    assert 'href="#e-a-2">a-2</a></td><td>Nobody said' in text
    assert "a-1 is damaged" in text
    assert parsed(text).count("details", **{"class": "episode"}) == 2


def test_plots_name_the_action_in_any_format_and_explain_only_lines_that_are_there(tmp_path):
    names = robot.ACTION_SPEC["groups"][0]["names"]
    assert names
    store = robots_store(tmp_path / "s")
    episode = robot.episode("a-0", steps=20)
    nothing = np.full_like(episode.action, np.nan)
    store.write(replace(episode, action_base=nothing, action_policy=nothing))
    load("robomimic").write(iter(store), store.features, store.action_spec, tmp_path / "s.hdf5")
    for path in (store.path, tmp_path / "s.hdf5"):
        text = write_store_page(path, tmp_path / "page.html").read_text()
        assert f"action {names[0]}:" in text
        assert '<i class="refined">executed</i>' in text
        assert "frozen policy" not in text
        assert "policy after correction" not in text


def test_pictures_and_plots_can_be_left_out(store, tmp_path):
    page = write_store_page(store.path, tmp_path / "page.html", thumbnails=0, plots=False)
    tags = parsed(page.read_text())
    assert tags.count("img") == tags.count("polyline") == 0
    assert page.stat().st_size < 20_000
    with pytest.raises(ValueError, match="thumbnails is -1"):
        write_store_page(store.path, tmp_path / "page.html", thumbnails=-1)
    with pytest.raises(ValueError, match="which is a folder"):
        write_store_page(store.path, tmp_path)


def test_the_bar_cuts_where_source_segment_or_kind_change_and_marks_events():
    source = np.array(["policy"] * 4 + ["human"] * 4 + ["policy"] * 2)
    kind = np.array(["none"] * 4 + ["correction"] * 2 + ["rewind"] * 2 + ["none"] * 2)
    episode = robot.episode(steps=10, streams=False, source=source, segment_kind=kind)
    times = episode.monotonic_time
    bar = segment_bar(replace(episode, events=robot.pause(times[5], times[6])))
    found = re.findall(r'class="(\w+) (\w+)" x="([\d.]+)%" width="([\d.]+)%"', bar)
    assert found == [
        ("policy", "none", "0", "40"),
        ("human", "correction", "40", "20"),
        ("human", "rewind", "60", "20"),
        ("policy", "none", "80", "20"),
    ]
    assert "pause, step 5" in bar


def test_a_long_line_keeps_its_peak_and_nan_leaves_a_hole():
    values = np.zeros(5000)
    values[3333] = 7.0
    drawn = strip("force", [Line(values)], "N")
    assert "force: 0 to 7 N" in drawn
    heights = [float(pair.split(",")[1]) for pair in re.search(r'points="([^"]+)"', drawn)[1].split()]
    assert min(heights) == 2.0
    assert len(heights) < 200
    assert strip("x", [Line([0.0, 1.0, np.nan, 2.0, 3.0])]).count("<polyline") == 2
    assert strip("x", [Line([np.nan, np.nan])]) == ""
    assert "nan" not in strip("x", [Line([1.0, 1.0])])
    assert "x: 40.001 to 40.002 N" in strip("x", [Line([40.001, 40.002])], "N")


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_thumbnails_keep_the_shape(channels):
    picture = np.zeros((40, 80, channels), np.uint8)
    assert 'width="112" height="56"' in thumbnail(picture)


def test_five_hundred_episodes_make_a_page_that_a_browser_can_take(tmp_path):
    """Without pictures about 10 kB each; nothing is open at first."""
    from robot_rl.report import store_page

    drawn = store_page._Drawn(store_page.Style(), robot.ACTION_SPEC)
    episode = robot.episode(steps=100)
    drawn.visit(episode, [])
    drawn.rows *= 500
    from data.validate import Report

    text = store_page._page(tmp_path, Report(findings=[], episodes=500, steps=50_000), drawn)
    assert 1e6 < len(text) < 25e6
    assert '<details class="episode" id="e-a-0">' in text
    assert "open>" not in text
