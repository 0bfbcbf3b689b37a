import importlib
import json

import pytest


def test_parts_of_acting_and_learning_add_up_to_the_whole(tmp_path):
    refine_step = importlib.import_module("refine_step")
    path = tmp_path / "step.json"
    refine_step.main(
        ["--task", "push-disc", "--rows", "1", "--repeats", "1", "--updates", "2", "--json", str(path)]
    )
    figures = json.loads(path.read_text())["figures"]
    for whole, expected in (
        ("acting per environment step", {"simulation", "base policy", "corrector", "episode store", "reset"}),
        ("learning per update", {"critics", "actor and temperature", "averages of critics and actor"}),
    ):
        found = {f["name"].removeprefix(f"{whole}, "): f for f in figures if f["whole"] == whole}
        assert set(found) == expected | {"whole", "everything else"}
        total = found.pop("whole")
        assert total["ratio"] == 1.0
        assert sum(f["milliseconds"] for f in found.values()) == pytest.approx(total["milliseconds"])
        assert all(f["milliseconds"] > 0.0 for f in found.values())


def test_part_clock_counts_time_inside_watched_calls_only(monkeypatch):
    harness = importlib.import_module("harness")
    now = iter([10.0, 13.0])
    monkeypatch.setattr(harness.time, "process_time", lambda: next(now))

    class Worker:
        def work(self, factor):
            return 2 * factor

    worker, clock = Worker(), harness.PartClock()
    clock.watch(worker, "work", "working")

    assert worker.work(21) == 42
    whole, working, rest = clock.shares("step", 12.0, 6)
    assert (whole.milliseconds, whole.ratio) == (2000.0, 1.0)
    assert (working.milliseconds, working.ratio) == (500.0, 0.25)
    assert (rest.name, rest.milliseconds) == ("step, everything else", 1500.0)
