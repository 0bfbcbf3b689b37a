import importlib
import json

import numpy as np
import pytest

TINY = ["--batches", "1", "--rows", "60", "--repeats", "1"]


@pytest.fixture
def replay_speed():
    return importlib.import_module("replay_speed")


@pytest.fixture
def small(replay_speed, monkeypatch):
    monkeypatch.setattr(replay_speed, "BATCH", 8)
    monkeypatch.setattr(replay_speed, "PICTURE", (6, 5, 3))
    monkeypatch.setattr(replay_speed, "STEPS", 10)
    return replay_speed


def test_without_peers_it_measures_ours_and_says_what_it_skipped(small, tmp_path, monkeypatch):
    monkeypatch.setattr(small.importlib.util, "find_spec", lambda _: None)
    path = tmp_path / "replay.json"
    small.main([*TINY, "--memory-steps", "30", "--json", str(path)])
    written = json.loads(path.read_text())
    assert [figure["name"] for figure in written["figures"]] == [
        "our replay, states",
        "our replay, pictures",
        "our replay, adding states",
        *(
            f"our replay, adding episodes of {steps} steps {how}"
            for steps in (10, 50)
            for how in ("one by one", "as a wave", "as a wave, labelled")
        ),
        "our replay, adding pictures",
        "our replay",
    ]
    assert set(written["skipped"]) == {"stable-baselines3", "LeRobot"}


def test_our_batch_has_the_size_that_peers_are_asked_for(small):
    assert {len(tensor) for tensor in small.our_sampling(40, pictures=True)()} == {8}


@pytest.mark.slow  # importing LeRobot takes long
@pytest.mark.timeout(600)
def test_lerobot_is_filled_with_what_ours_is(small):
    pytest.importorskip("lerobot.rl.buffer")
    theirs = small.lerobot_sampling(40, pictures=True)()
    assert len(theirs["action"]) == 8
    assert theirs["state"][small.PICTURES[0]].shape == (8, 3, 6, 5)


def test_stable_baselines3_is_filled_with_what_ours_is(small):
    pytest.importorskip("stable_baselines3")
    samples = small.sb3_sampling(40, pictures=True)()
    assert samples.observations[small.PICTURES[0]].shape[0] == 8
    small.sb3_adding(pictures=False)()


def test_our_tensors_are_the_batch_without_a_copy(small):
    import torch

    from data.replay import ReplayBuffer

    replay = ReplayBuffer(20)
    replay.extend([small.recording(5, np.random.default_rng(0), pictures=False)])
    batch = replay.sample(8, np.random.default_rng(0))
    for tensor in small.as_tensors(batch):
        assert isinstance(tensor, torch.Tensor)
    first = small.as_tensors(batch)[0]
    assert first.data_ptr() == batch.observations[small.KEY].ctypes.data
