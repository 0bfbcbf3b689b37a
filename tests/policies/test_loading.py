from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from policies.checkpoint import CheckpointError, save
from policies.loaders import Loader
from policies.loading import load, source_text
from tests.policies.tools import FEATURES, SPEC, flow_policy


def test_a_native_policy_is_loaded_with_what_a_caller_may_always_say(tmp_path):
    policy = flow_policy()
    save(policy, tmp_path)
    for source in (tmp_path, str(tmp_path)):
        loaded = load(source, default_features=FEATURES, default_action_spec=SPEC, action_spec=SPEC)
        assert loaded.hash() == policy.hash()
    with pytest.raises(TypeError, match="kind 'native' has no option 'rate_hz'"):
        load(tmp_path, rate_hz=3.0)
    with pytest.raises(ValueError, match="device is 'nowhere'"):
        load(tmp_path, "nowhere")


def test_a_pickle_is_refused_in_the_words_of_the_native_reader(tmp_path):
    (tmp_path / "policy.ckpt").write_bytes(b"")
    for source in (tmp_path, tmp_path / "policy.ckpt"):
        with pytest.raises(CheckpointError, match="pickled weights can run code"):
            load(source)


def test_other_packages_add_sources_by_entry_point(monkeypatch):
    asked = []

    def answer(source, device, options):
        asked.append((source, str(device), options))
        return flow_policy()

    class Other(EntryPoint):
        def load(self):
            return Loader("other", "an address of another kind", lambda s: s.startswith("other://"), answer)

    points = [Other("other", "package:LOADER", "robot_rl.policies")]
    monkeypatch.setattr("policies.loaders.entry_points", lambda group: points)
    load("other://robot:1", "cpu")
    load(Path("other://robot:1"), "cpu", default_features=FEATURES)
    assert asked == [("other://robot:1", "cpu", {})] * 2
    with pytest.raises(CheckpointError, match=r"(?s)Looked for:.*an address of another kind"):
        load("neither/nor/this")


def test_a_path_keeps_an_address():
    assert source_text(Path("ws://host:8000")) == "ws://host:8000"
    assert source_text("ws://host:8000") == "ws://host:8000"
    assert source_text(Path("runs/base")) == "runs/base"
