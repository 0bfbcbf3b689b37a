import importlib
import json

import torch


def test_both_sides_compute_the_same_chunk_and_are_timed(tmp_path):
    speed = importlib.import_module("adapter_speed")
    folder = speed.checkpoint(tmp_path / "policy", (8, 16))
    _, ours = speed.our_call(folder, 2)
    assert torch.equal(ours()[:, :8], speed.lerobots_call(folder, 2)())

    path = tmp_path / "figures.json"
    speed.main(
        ["--calls", "1", "--repeats", "1", "--rows", "1", "--down-dims", "8", "16", "--json", str(path)]
    )
    names = [figure["name"] for figure in json.loads(path.read_text())["figures"]]
    assert names == ["our sampler, B = 1", "LeRobot's own call, B = 1"]
