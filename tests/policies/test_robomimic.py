"""Checkpoints that robomimic's own code saved, against robomimic's own rollouts; pickles that hold more."""

from __future__ import annotations

import contextlib
import io
import json
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
import torch

from hardware.action_spec import ActionGroup, ActionSpec
from policies.checkpoint import CheckpointError
from policies.loading import load
from policies.policy import PolicyError, require_chunk_policy
from policies.request import ChunkRequest

pytest.importorskip("robomimic")
pytestmark = [
    pytest.mark.timeout(600),  # robomimic imports much, which takes long on a busy machine
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # robomimic's imports
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

ENV = {"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20}}
SHAPES = OrderedDict([("object", [3]), ("robot0_eef_pos", [3])])
SIZE = 2


def config(name, **changes):
    from robomimic.config import config_factory

    made = config_factory(name)
    with made.unlocked():
        made.observation.modalities.obs.low_dim = list(SHAPES)
        made.observation.modalities.obs.rgb = []
        if name == "bc":
            made.algo.actor_layer_dims = (16, 16)
        for path, value in changes.items():
            target, *names = made.algo, *path.split("__")
            for part in names[:-1]:
                target = target[part]
            target[names[-1]] = value
    return made


def saved(path, made, *, env=ENV, train=0, **more):
    """Write a checkpoint with robomimic's code; returns its algorithm."""
    from robomimic.algo import algo_factory
    from robomimic.utils import obs_utils, tensor_utils

    with contextlib.redirect_stdout(io.StringIO()):
        obs_utils.initialize_obs_utils_with_config(made)
        torch.manual_seed(0)
        algo = algo_factory(made.algo_name, made, SHAPES, SIZE, torch.device("cpu"))
        for _ in range(train):
            algo.set_train()
            batch = {
                "obs": {key: torch.randn(4, 16, *shape) for key, shape in SHAPES.items()},
                "actions": torch.rand(4, 16, SIZE) * 2 - 1,
            }
            algo.train_on_batch(algo.process_batch_for_training(batch), 0)
        algo.set_eval()
        shapes = {"ac_dim": SIZE, "all_shapes": SHAPES, "all_obs_keys": list(SHAPES), "use_images": False}
    # As robomimic.utils.train_utils.save_model does it; that module imports everything that trains.
    written = {"model": algo.serialize(), "config": made.dump(), "algo_name": made.algo_name}
    written |= {"env_metadata": env, "shape_metadata": shapes, "variable_state": {"epoch": 3}}
    torch.save(written | {name: tensor_utils.to_list(stats) for name, stats in more.items()}, path)
    return algo


def request(rows=2, steps=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    keys = ("observation.object", "observation.robot0_eef_pos")
    return ChunkRequest({key: torch.randn(rows, steps, 3, generator=generator) for key in keys})


def theirs(asked, row=slice(None), last=True):
    named = {key.removeprefix("observation."): value[row] for key, value in asked.observation.items()}
    return {key: value[:, -1] if last else value for key, value in named.items()}


@pytest.fixture(autouse=True, scope="module")
def _small_networks():
    """robomimic's Diffusion Policy has one size, of 60 million parameters; the same class, made narrow."""
    from robomimic.models import diffusion_policy_nets

    small = partial(diffusion_policy_nets.ConditionalUnet1D, down_dims=[16, 32], diffusion_step_embed_dim=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diffusion_policy_nets, "ConditionalUnet1D", small)
        yield


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_behaviour_cloning_acts_as_in_robomimic(tmp_path):
    algo = saved(tmp_path / "bc.pth", config("bc"))
    policy, asked = load(tmp_path / "bc.pth"), request()
    expected = algo.get_action(theirs(asked))
    assert torch.equal(policy.chunk(asked), expected[:, None])
    spec = policy.spec
    assert (spec.horizon, spec.observation_steps, spec.rate_hz, spec.action_size) == (1, 1, 20.0, 2)
    assert spec.features["observation.robot0_eef_pos"].unit == "m"
    assert policy.hash() == load(tmp_path / "bc.pth").hash()
    with pytest.raises(PolicyError, match="keeps its denoising closed"):
        require_chunk_policy(policy, "guidance by hooks")
    with pytest.raises(ValueError, match="noise only in Diffusion Policy"):
        policy.chunk(asked, torch.zeros(2, 1, 2))
    with pytest.raises(ValueError, match="lacks"):
        policy.chunk(ChunkRequest({"observation.object": torch.zeros(1, 1, 3)}))


@pytest.mark.parametrize("kind", ["gaussian", "gmm"])
def test_what_samples_gives_one_chunk_for_one_observation(tmp_path, kind):
    saved(tmp_path / "bc.pth", config("bc", **{f"{kind}__enabled": True}))
    policy, asked = load(tmp_path / "bc.pth"), request(rows=3)
    state = torch.random.get_rng_state()
    whole = policy.chunk(asked)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(policy.chunk(asked.rows([1])), whole[1:2])
    assert not torch.equal(policy.chunk(request(rows=3, seed=1)), whole)


DIFFUSION = {
    "horizon__observation_horizon": 2,
    "horizon__action_horizon": 4,
    "horizon__prediction_horizon": 8,
    "ddpm__num_train_timesteps": 10,
    "ddpm__num_inference_timesteps": 10,
    "ddim__num_train_timesteps": 10,
    "ddim__num_inference_timesteps": 5,
    "optim_params__policy__num_train_batches": 10,  # which robomimic's training script adds
    "optim_params__policy__num_epochs": 10,
}


@pytest.fixture(scope="module")
def diffusion(tmp_path_factory, _small_networks):
    """A DDIM and a DDPM policy, trained for two steps."""
    folder = tmp_path_factory.mktemp("diffusion")
    made = {}
    for kind in ("ddim", "ddpm"):
        on = {f"{name}__enabled": name == kind for name in ("ddim", "ddpm")}
        path = folder / f"{kind}.pth"
        made[kind] = path, saved(path, config("diffusion_policy", **DIFFUSION, **on), train=2)
    return made


def test_diffusion_policy_denoises_as_in_robomimic_from_the_same_noise(diffusion, monkeypatch):
    path, algo = diffusion["ddim"]
    policy, asked = load(path), request(steps=2)
    spec = policy.spec
    shape = (spec.horizon, spec.executed_steps, spec.first_action, spec.observation_steps)
    assert shape == (8, 4, 1, 2)
    assert spec.supports.noise
    assert not spec.supports.velocity
    noise = torch.randn(2, 8, 2)
    monkeypatch.setattr(torch, "randn", lambda *shape, **_: noise)
    expected = algo._get_action_trajectory(theirs(asked, last=False))
    monkeypatch.undo()
    chunk = policy.chunk(asked, noise)
    torch.testing.assert_close(chunk[:, 1:5], expected, atol=0, rtol=0)
    torch.testing.assert_close(policy.chunk(asked.rows([1]), noise[1:]), chunk[1:], atol=1e-5, rtol=0)


def test_what_ddpm_draws_follows_from_the_noise_of_each_row(diffusion):
    policy, asked = load(diffusion["ddpm"][0]), request(steps=2)
    noise = torch.randn(2, 8, 2)
    chunk = policy.chunk(asked, noise)
    assert torch.equal(policy.chunk(asked, noise), chunk)
    torch.testing.assert_close(policy.chunk(asked.rows([1]), noise[1:]), chunk[1:], atol=1e-5, rtol=0)
    assert not torch.equal(policy.chunk(asked, torch.randn(2, 8, 2)), chunk)
    with pytest.raises(ValueError, match="noise has shape"):
        policy.chunk(asked, noise[:, :3])


def test_normalisation_is_that_of_robomimics_rollouts(tmp_path):
    from robomimic.algo import RolloutPolicy

    made = config("bc")
    with made.values_unlocked():
        made.train.hdf5_normalize_obs = True
        made.train.action_keys = ["actions"]
        made.train.action_config = {"actions": {"normalization": "min_max"}}
    stats = {key: {"offset": np.full((1, 3), 0.5), "scale": np.full((1, 3), 2.0)} for key in SHAPES}
    action = {"actions": {"offset": np.array([[0.1, 0.2]]), "scale": np.array([[3.0, 4.0]])}}
    algo = saved(tmp_path / "bc.pth", made, obs_normalization_stats=stats, action_normalization_stats=action)
    policy, asked = load(tmp_path / "bc.pth"), request(rows=1)
    rollout = RolloutPolicy(algo, obs_normalization_stats=stats, action_normalization_stats=action)
    expected = rollout({key: value[0].numpy() for key, value in theirs(asked).items()})
    np.testing.assert_allclose(policy.chunk(asked)[0, 0].numpy(), expected, atol=1e-6)


class Boom:
    """Writes a file when it is unpickled."""

    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return (open, (self.file, "w"))


def test_a_pickle_that_holds_more_is_refused_by_name_and_nothing_runs(tmp_path):
    path = tmp_path / "bc.pth"
    saved(path, config("bc"))
    content = torch.load(path, weights_only=True)
    torch.save({**content, "variable_state": Boom(tmp_path / "ran")}, path)
    with pytest.raises(CheckpointError, match=r"is refused: it holds .*open, which could run code"):
        load(path)
    assert not (tmp_path / "ran").exists()
    torch.save({**content, "variable_state": {"best": np.float64(0.5), "all": np.zeros(2)}}, path)
    assert load(path).spec.horizon == 1  # numbers of NumPy are allowed


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "cannot be read"), (b"PK\x03\x04 cut off", "cannot be read"), (b"\x80\x02c", "is refused")],
)
def test_files_that_are_no_checkpoint_are_refused(tmp_path, content, why):
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(CheckpointError, match=why):
        load(tmp_path / "x.pth")


def test_what_is_not_supported_is_refused_by_name(tmp_path):
    path = tmp_path / "x.pth"
    torch.save({"weights": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match="no checkpoint of robomimic: it lacks model, config"):
        load(path)
    saved(path, config("bc", rnn__enabled=True, rnn__hidden_dim=8))
    with pytest.raises(CheckpointError, match="is a BC_RNN, which keeps a state between steps"):
        load(path)
    saved(path, config("bc"), env={"env_name": "x", "type": 2, "env_kwargs": {}})
    with pytest.raises(CheckpointError, match="does not say its control rate: give rate_hz=HZ"):
        load(path)
    arm = ActionGroup("arm", 2, "delta", "position", "base", unit="m", low=(-1.0,), high=(1.0,))
    assert load(path, default_action_spec=ActionSpec((arm,), 5.0)).spec.action_spec.units == ("m", "m")
    assert load(path, rate_hz=5.0).spec.action_spec.units == ("", "")
    with pytest.raises(CheckpointError, match=r"has no \['objekt'\], to which keys are mapped"):
        load(path, rate_hz=5.0, keys={"observation.object": "objekt"})
    content = torch.load(path, weights_only=True)
    content["config"] = json.dumps({"algo_name": "bc"})
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="does not fit its own configuration"):
        load(path)
