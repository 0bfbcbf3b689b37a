import importlib
import json

import pytest

TINY = ["--calls", "1", "--repeats", "1", "--rows", "1", "2"]


@pytest.fixture
def policy_speed():
    return importlib.import_module("policy_speed")


def test_writes_a_figure_per_batch_size_and_says_that_the_peer_was_left_out(policy_speed, tmp_path):
    path = tmp_path / "policy.json"
    policy_speed.main([*TINY, "--no-peer", "--json", str(path)])

    written = json.loads(path.read_text())
    assert [figure["name"] for figure in written["figures"]] == ["native flow, B = 1", "native flow, B = 2"]
    assert [figure["settings"]["rows"] for figure in written["figures"]] == [1, 2]
    assert all(figure["settings"]["parameters"] > 100_000 for figure in written["figures"])
    assert written["skipped"] == {"LeRobot Diffusion": "left out on request"}


def test_names_what_the_peer_lacks(policy_speed, monkeypatch):
    monkeypatch.setattr(
        policy_speed.importlib.util, "find_spec", lambda name: None if name == "diffusers" else 1
    )
    assert policy_speed.why_no_peer() == "diffusers not installed"
    monkeypatch.setattr(policy_speed.importlib.util, "find_spec", lambda _: None)
    assert policy_speed.why_no_peer() == "lerobot and diffusers not installed"


def test_call_denoises_a_whole_chunk_for_every_row(policy_speed):
    call = policy_speed.native_call(policy_speed.native(), 3)
    chunk = call()
    assert chunk.shape == (3, policy_speed.HORIZON, policy_speed.ACTION)
    assert (chunk == call()).all()
