import importlib
import json

import pytest


@pytest.fixture
def harness():
    return importlib.import_module("harness")


def contestant(harness, name, seconds, units, peer=None):
    """Pretends to have taken these seconds of either clock."""
    turns = iter(seconds)

    def turn(stopwatch):
        stopwatch.cpu = stopwatch.wall = next(turns)
        return units

    return harness.Contestant(name, turn, "step", peer)


def test_figure_is_the_median_rate_without_the_warm_up_and_its_ratio_to_the_peer(harness):
    ours = contestant(harness, "ours", [100.0, 1.0, 2.0, 4.0], 8, peer="theirs")
    theirs = contestant(harness, "theirs", [100.0, 4.0, 4.0, 4.0], 8)

    first, second = harness.measure([ours, theirs], repeats=3)

    assert first.per_second == 4.0  # of 8, 4 and 2 per second
    assert first.turns_cpu == (8.0, 4.0, 2.0)
    assert first.ratio == 2.0
    assert second.ratio is None


def test_contestants_take_turns(harness):
    order = []

    def turn(name):
        def run(stopwatch):
            order.append(name)
            stopwatch.wall = stopwatch.cpu = 1.0
            return 1

        return run

    pair = [harness.Contestant(name, turn(name), "step") for name in "ab"]
    harness.measure(pair, repeats=2, warmup=1)

    assert "".join(order) == "ababab"


def test_missing_peer_is_not_compared(harness):
    (figure,) = harness.measure([contestant(harness, "ours", [1.0, 1.0], 1, peer="absent")], repeats=1)
    assert figure.ratio is None
    assert figure.peer is None


def test_chosen_clock_decides_rate_and_ratio(harness):
    def turn(stopwatch):
        stopwatch.cpu, stopwatch.wall = 1.0, 2.0
        return 10

    only = [harness.Contestant("ours", turn, "step")]
    assert harness.measure(only, repeats=1, clock="cpu")[0].per_second == 10.0
    assert harness.measure(only, repeats=1, clock="wall")[0].per_second == 5.0


def test_turn_without_work_is_refused(harness):
    with pytest.raises(ValueError, match="idle: 0 units"):
        harness.measure([contestant(harness, "idle", [1.0], 0)], repeats=1, warmup=0)


def test_stopwatch_leaves_out_what_is_outside(harness):
    stopwatch = harness.Stopwatch()
    with stopwatch:
        sum(range(1000))
    inside = stopwatch.wall
    sum(range(1000))
    assert stopwatch.wall == inside > 0.0


def test_publish_prints_a_line_per_figure_and_writes_json(harness, tmp_path, capsys):
    ours = contestant(harness, "ours", [2.0], 50, peer="theirs")
    theirs = contestant(harness, "theirs", [10.0], 50)
    figures = harness.measure([ours, theirs], repeats=1, warmup=0)
    path = tmp_path / "new" / "figures.json"

    harness.publish("mine", figures, skipped={"other": "not installed"}, json_path=path)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ours: 25 steps per s of cpu time")
    assert lines[0].endswith("5.00 x theirs")
    assert "200.0 ms per step" in lines[1]
    assert lines[2] == "other: skipped, not installed"
    written = json.loads(path.read_text())
    assert written["figures"][0]["ratio"] == 5.0
    assert written["skipped"] == {"other": "not installed"}
    assert {"processor", "cores", "versions", "threads"} <= set(written["machine"])
    assert [each.name for each in path.parent.iterdir()] == ["figures.json"]
