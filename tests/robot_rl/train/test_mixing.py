"""Training on demonstrations and rollouts at once, and going on from a policy."""

import json
from dataclasses import replace

import pytest
import torch

from data.features import Feature
from data.records import EpisodeBuilder, Outcome, Source, Step
from data.store import EpisodeStore
from policies.checkpoint import load
from policies.request import ChunkRequest
from robot_rl.train.cloning import train
from robot_rl.train.mixing import RowMixture
from tests.robot_rl.train.test_cloning import SPEC, config, record


def test_a_fixed_share_of_each_batch_comes_from_the_added_trajectories() -> None:
    trajectory = torch.tensor([0] * 90 + [1] * 5 + [2] * 5)
    generator = torch.Generator().manual_seed(0)
    rows = RowMixture(trajectory, 1, 0.75).draw(40, generator)
    assert [int((rows < 90).sum()), int((rows >= 90).sum())] == [10, 30]
    natural = RowMixture(trajectory, 1, None).draw(20_000, generator)
    assert float((natural >= 90).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert RowMixture(trajectory, 3, 0.5).draw(8, generator).shape == (8,), "nothing was added"


@pytest.fixture
def rollouts(tmp_path):
    """One success of a policy that always acts the same way, and one failure that acts the other way."""
    features = {"observation.state": Feature((4,), "float32"), "observation.wrench": Feature((2,), "float32")}
    store = EpisodeStore(tmp_path / "rollouts", features=features, action_spec=SPEC.to_json())
    for name, sign in (("success", 1), ("failure", -1)):
        builder = EpisodeBuilder(id=name, task="circle", seed=0)
        seen = {"observation.state": torch.ones(4).numpy(), "observation.wrench": torch.zeros(2).numpy()}
        builder.start(seen)
        for step in range(12):
            time = step / 20
            act = Step(
                action=[0.04 * sign, 0.04 * sign], source=Source.POLICY, wall_time=time, monotonic_time=time
            )
            builder.append(act, seen)
        store.write(builder.finish(Outcome(name)))
    return store.path


def test_a_student_goes_on_from_its_base_towards_the_successes(tmp_path, rollouts) -> None:
    record(tmp_path / "demos", 4)
    base = train(config(tmp_path / "demos", tmp_path / "base", steps=40))
    more = config(
        tmp_path / "demos", tmp_path / "student", steps=60, start=base, also=(rollouts,), also_share=0.8
    )
    student = train(replace(more, average=0.0, network=replace(more.network, hidden=7)))
    old, new = load(base), load(student)
    assert json.loads((student / "result.json").read_text())["also"] == 1, "failures are not imitated"
    assert old.hash() == json.loads((base / "result.json").read_text())["policy_hash"], "the base stays"
    assert torch.equal(old.action_normalizer.scale, new.action_normalizer.scale)
    request = torch.ones(8, 1, 4)
    noise = torch.randn(8, 8, 2, generator=torch.Generator().manual_seed(1))
    error = [
        float((p.chunk(ChunkRequest({"observation.state": request}), noise=noise) - 0.04).abs().mean())
        for p in (old, new)
    ]
    assert error[1] < 0.5 * error[0]


def test_rollouts_of_another_robot_are_refused(tmp_path, rollouts) -> None:
    record(tmp_path / "demos", 3)
    features = {"observation.state": Feature((5,), "float32"), "observation.wrench": Feature((2,), "float32")}
    store = EpisodeStore(tmp_path / "other", features=features, action_spec=SPEC.to_json())
    builder = EpisodeBuilder(id="a", task="t", seed=0)
    seen = {"observation.state": torch.ones(5).numpy(), "observation.wrench": torch.zeros(2).numpy()}
    builder.start(seen)
    builder.append(Step(action=[0, 0], source=Source.POLICY, wall_time=0.0, monotonic_time=0.0), seen)
    store.write(builder.finish(Outcome.SUCCESS))
    with pytest.raises(ValueError, match="rollouts of the same robot"):
        train(config(tmp_path / "demos", tmp_path / "run", also=(tmp_path / "other",)))
    with pytest.raises(ValueError, match=r"also_share is 0\.5"):
        config(tmp_path / "demos", tmp_path / "run", also_share=0.5)
