import importlib
import json

import numpy as np
import pytest

TINY = [
    "--episodes",
    "2",
    "--steps",
    "20",
    "--size",
    "32",
    "--samples",
    "6",
    "--batch",
    "3",
    "--repeats",
    "1",
]


@pytest.fixture
def chunk_loader():
    return importlib.import_module("chunk_loader")


def test_times_our_store_with_and_without_cache(chunk_loader, tmp_path, monkeypatch):
    monkeypatch.setattr(chunk_loader.importlib.util, "find_spec", lambda _: None)
    path = tmp_path / "chunks.json"
    chunk_loader.main([*TINY, "--json", str(path)])

    written = json.loads(path.read_text())
    names = [figure["name"] for figure in written["figures"]]
    assert names == ["our store", "our store, pictures cached"]
    assert written["skipped"] == {"LeRobot's loader": "lerobot is not installed"}


def test_the_made_up_cameras_differ_and_move(chunk_loader):
    episode = chunk_loader.made_up_episode(0, 3, 32)
    top, wrist = (episode.observations[key].astype(int) for key in chunk_loader.CAMERAS)
    assert np.abs(top[0] - wrist[0]).max() > 50
    assert np.abs(top[0] - top[2]).max() > 50
