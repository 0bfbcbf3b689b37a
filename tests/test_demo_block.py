"""The README's figures come from result files, and only from them."""

from __future__ import annotations

import importlib.util
import json

from tests.conftest import REPOSITORY


def script():
    spec = importlib.util.spec_from_file_location("demo_block", REPOSITORY / "scripts/demo_block.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arm(rate, low, high):
    return {"success_rate": rate, "interval": [low, high], "episodes": [{}] * 200}


def test_a_result_becomes_a_row(tmp_path):
    result = {
        "base": arm(0.3, 0.25, 0.36),
        "refined": arm(0.96, 0.92, 0.98),
        "paired_difference": {"value": 0.66, "interval": [0.58, 0.72]},
        "env_steps": 30000,
        "wall_seconds": 330.0,
        "base_hash_before": "a",
        "base_hash_after": "a",
    }
    (tmp_path / "result.json").write_text(json.dumps(result))
    (tmp_path / "config.json").write_text(json.dumps({"config": {"seed": 3}}))
    demo = script()
    row = demo.row(tmp_path)
    assert row.startswith("| 3 | 200 | 30.0% (25.0% to 36.0%) | 96.0% (92.0% to 98.0%) | +66.0%")
    assert "| 30,000 | 5.5 min | unchanged |" in row
    text = f"before\n{demo.BEGIN}\nold\n{demo.END}\nafter"
    assert demo.fill(text, row) == f"before\n{demo.BEGIN}\n{row}\n{demo.END}\nafter"
