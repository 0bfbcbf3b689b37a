"""Saving, versions and composition of refiners."""

from __future__ import annotations

import json

import pytest
import torch

from policies.hooks import DenoiseHook
from robot_rl.guide.real_time import RealTimeChunking, RealTimeConfig
from robot_rl.parts import compose, load_refiner, load_refiners, save_refiner, version_of
from robot_rl.refiner import Refiner
from robot_rl.study.constant_offset import ConstantOffset


class Early(DenoiseHook):
    """A hook that acts before real-time chunking."""

    order = 20

    def payload(self):
        return {}

    def tensors(self):
        return {"bank": torch.ones(2)}

    @classmethod
    def from_payload(cls, payload, tensors):
        assert tensors["bank"].tolist() == [1, 1]
        return cls()


def test_the_version_depends_on_what_is_configured_and_not_only_on_tensors():
    linear = Refiner(hooks=(RealTimeChunking(RealTimeConfig(schedule="linear")),))
    ones = Refiner(hooks=(RealTimeChunking(RealTimeConfig(schedule="ones")),))
    assert version_of(linear) != version_of(ones)
    assert version_of(linear) == version_of(Refiner(hooks=tuple(linear.hooks)))


def test_a_changed_configuration_is_refused(tmp_path):
    save_refiner(tmp_path, Refiner(hooks=(RealTimeChunking(),)))
    file = tmp_path / "refiner.json"
    manifest = json.loads(file.read_text())
    manifest["parts"][0]["payload"]["schedule"] = "ones"
    file.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="are not those that its manifest's version stands for"):
        load_refiner(tmp_path)


def test_refiners_act_together_in_the_order_of_their_hooks(tmp_path):
    save_refiner(tmp_path / "a", Refiner(hooks=(RealTimeChunking(),)))
    save_refiner(tmp_path / "b", Refiner(hooks=(Early(),), correct=ConstantOffset((0.1, 0.0)), base_hash="b"))
    both = load_refiners([tmp_path / "a", tmp_path / "b"])
    assert [type(hook) for hook in both.hooks] == [Early, RealTimeChunking]
    assert (both.base_hash, both.correct.offset.tolist()) == ("b", [0.1, 0.0])
    assert both.version == version_of(both)
    assert load_refiners([tmp_path / "a"]).version == load_refiner(tmp_path / "a").version


def test_refiners_that_fill_one_place_or_have_different_bases_are_refused():
    one, other = (Refiner(correct=ConstantOffset((x, 0.0)), base_hash="b") for x in (0.1, 0.2))
    with pytest.raises(ValueError, match=r"Only one part can 'correct', not 2 \(ConstantOffset"):
        compose([one, other])
    with pytest.raises(ValueError, match="Refiners of 2 bases cannot act together"):
        compose([Refiner(base_hash="a"), Refiner(base_hash="b")])
    with pytest.raises(ValueError, match="none given"):
        compose([])
