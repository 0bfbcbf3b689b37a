import importlib
import json


def test_says_what_each_loop_missed(tmp_path):
    path = tmp_path / "loop.json"
    importlib.import_module("real_time_loop").main(["--seconds", "0.4", "--slow", "0.1", "--json", str(path)])
    beside, inside = json.loads(path.read_text())["figures"]
    assert (beside["name"], inside["name"]) == ("computed beside the loop", "computed in the loop")
    assert beside["values"]["steps"] == inside["values"]["steps"] == 20
    assert beside["values"]["chunk_ms"] >= 2.0
    assert inside["values"]["greatest_delay_steps"] == 0
