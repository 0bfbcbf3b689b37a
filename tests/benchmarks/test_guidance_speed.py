import importlib
import json


def test_writes_a_figure_per_kind_of_guidance_with_its_ratio_to_the_unguided(tmp_path):
    path = tmp_path / "guidance.json"
    importlib.import_module("guidance_speed").main(
        ["--calls", "1", "--repeats", "1", "--rows", "1", "--json", str(path)]
    )
    first, *guided = json.loads(path.read_text())["figures"]
    assert first["name"] == "unguided, B = 1"
    assert first["settings"]["parameters"] > 5_000_000
    assert first["ratio"] is None
    assert len(guided) == 5
    assert all(figure["peer"] == first["name"] and figure["ratio"] > 0 for figure in guided)
