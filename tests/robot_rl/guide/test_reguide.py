"""The phase-conditioned hook: its update, its gate, and phases counted per episode."""

import json
from dataclasses import replace

import pytest
import torch

from policies.sampler import sample, sample_chunk
from robot_rl.guide.phases import PhaseConfig, PhaseTargets, softmin
from robot_rl.guide.reguide import PhaseGuide
from robot_rl.task_texts import TaskTexts
from tests.policies.tools import ConstantVelocity, S, flow_policy, request
from tests.robot_rl.guide.test_barrier import Capture, model, noise_for

IDS = ("a", "b", "c", "d")


def targets(
    phases: int = 3, *, lower: float = -1e9, upper: float = 1e9, switch: float = -1e9
) -> PhaseTargets:
    """By default every row has drifted, is recoverable, and never reaches the next phase."""
    goals = torch.randn(phases, 4, S, generator=torch.Generator().manual_seed(5))
    flat = torch.ones(phases)
    used = torch.ones(phases, 4, dtype=torch.bool)
    return PhaseTargets(goals, used, flat, lower * flat, upper * flat, switch * flat)


def guide(policy, *, scale: float = 0.5, config: PhaseConfig | None = None, **more) -> PhaseGuide:
    hook = PhaseGuide(
        model(policy.spec.executed_steps),
        targets(**more),
        config or PhaseConfig(),
        scale=scale,
        guided_steps=2,
    )
    hook.begin_episode(IDS)
    return hook


def asked(rows: int = 4):
    return replace(request(rows), episode_ids=IDS[:rows])


@pytest.mark.parametrize("policy", [flow_policy(), ConstantVelocity()], ids=["flow", "ddim"])
@pytest.mark.parametrize(
    "change", [{"scale": 0.0}, {"lower": 1e8}, {"upper": -1e8}, {"switch": 1e9}],
    ids=["no scale", "near", "lost", "about to switch"],
)  # fmt: skip
def test_without_effect_the_base_is_repeated_to_the_bit(policy, change) -> None:
    noise, hook = noise_for(policy, 4), guide(policy, **change)
    assert torch.equal(sample_chunk(policy, asked(), noise, [hook]), sample_chunk(policy, asked(), noise))
    assert bool(hook.info()["reguide.active"].any()) == ("scale" in change)


@pytest.mark.parametrize("policy", [flow_policy(), ConstantVelocity()], ids=["flow", "ddim"])
def test_only_drifted_rows_change(policy) -> None:
    noise, hook = noise_for(policy, 4), guide(policy)
    sample_chunk(policy, asked(), noise, [hook])
    distance = hook.info()["reguide.distance"]
    bound = float(distance.sort().values[1:3].mean())
    hook = guide(policy, lower=bound)
    guided, plain = sample_chunk(policy, asked(), noise, [hook]), sample_chunk(policy, asked(), noise)
    far = hook.info()["reguide.active"]
    assert 0 < int(far.sum()) < 4
    assert torch.equal(guided[~far], plain[~far])
    assert all(not torch.equal(guided[row], plain[row]) for row in far.nonzero().flatten())


def test_the_clean_estimate_descends_the_softmin_and_the_network_is_not_differentiated() -> None:
    """v' = (x - a') / sigma with a' = a - c dL/da, the gradient by finite differences in double precision."""
    policy = flow_policy().double()
    hook, before, after = guide(policy, scale=0.3), Capture(), Capture()
    hook.model.dynamics.double()
    hook.targets = PhaseTargets(
        **{k: v if v.dtype == torch.bool else v.double() for k, v in hook.targets.tensors().items()}
    )
    latents = hook.model.latents
    latents.mean, latents.std = latents.mean.double(), latents.std.double()
    wanted = asked(2)
    context = policy.encode(wanted.observation)
    hook.begin_chunk(wanted, policy, context)
    with torch.no_grad():
        sample(policy, context, noise_for(policy, 2).double(), [before, hook, after])
    one, two = before.states[2], after.states[2]
    assert one.leaf is None
    assert two.x is one.x
    torch.testing.assert_close(two.velocity, (one.x - two.clean) / one.sigma)
    goals, used = hook.targets.prototypes[[0, 0]], hook.targets.used[[0, 0]]

    def loss(clean: torch.Tensor) -> torch.Tensor:
        predicted = hook.model.dynamics(hook._latent, policy.decode(clean, context)[:, :3])
        return softmin(predicted, goals, used, 0.05)

    gradient = (one.clean - two.clean) / 0.3
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        place = tuple(int(torch.randint(size, (1,), generator=generator)) for size in one.clean.shape)
        offset = torch.zeros_like(one.clean)
        offset[place] = 1e-6
        slope = (loss(one.clean + offset) - loss(one.clean - offset))[place[0]] / 2e-6
        assert float(gradient[place]) == pytest.approx(float(slope), rel=1e-3, abs=1e-8)
    small = one.clean - 0.01 * gradient
    assert bool((loss(small) < loss(one.clean)).all())


def test_proprioception_counts_a_fifth() -> None:
    policy = flow_policy()
    hook = guide(policy)
    latent = torch.randn(4, S)
    hook.begin_chunk(asked(), policy, policy.encode(asked().observation))
    goals, used = hook.targets.prototypes[[0] * 4], hook.targets.used[[0] * 4]
    hook.model.latents.scene = 3
    parts = [softmin(latent[:, part], goals[..., part], used, 0.05) for part in (slice(3), slice(3, None))]
    torch.testing.assert_close(hook._loss(latent), parts[0] + 0.2 * parts[1])


def test_each_episode_is_in_a_phase_of_its_own_and_starts_again_when_it_begins() -> None:
    policy = flow_policy()
    config = PhaseConfig(switch_decisions=1, switch_margin=-1e9)
    hook = guide(policy, switch=1e9, config=config)
    phases = []
    for ids in (("a", "b"), ("b", "a"), ("a", "c")):
        sample_chunk(policy, replace(request(2), episode_ids=ids), noise_for(policy, 2), [hook])
        phases.append(hook.info()["reguide.phase"].tolist())
    assert phases == [[0, 0], [1, 1], [2, 0]]
    hook.begin_episode(["a"])
    sample_chunk(policy, replace(request(2), episode_ids=("a", "b")), noise_for(policy, 2), [hook])
    assert hook.info()["reguide.phase"].tolist() == [0, 2]
    sample_chunk(policy, replace(request(1), episode_ids=("b",)), noise_for(policy, 1), [hook])
    assert hook.info()["reguide.phase"].tolist() == [2], "the last phase stays"


def test_a_row_is_guided_through_the_phases_of_the_task_it_is_told() -> None:
    """With phases at two places per task and everything always reached, progress is counted per task."""
    policy, texts = flow_policy(), TaskTexts(("left", "right"))
    goals = PhaseTargets.joined([targets(2, switch=1e9), targets(2, switch=1e9)])
    config = PhaseConfig(phases=2, switch_decisions=1, switch_margin=-1e9)
    hook = PhaseGuide(model(), goals, config, scale=0.5, guided_steps=2, texts=texts)
    wanted = replace(request(2), episode_ids=("a", "b"))
    wanted = replace(wanted, observation={**wanted.observation, "task": ["right", "left"]})
    seen = []
    for _ in range(3):
        sample_chunk(policy, wanted, noise_for(policy, 2), [hook])
        seen.append((hook.info()["reguide.phase"].tolist(), hook._at.phase.tolist()))
    assert seen == [([0, 0], [2, 0]), ([1, 1], [3, 1]), ([1, 1], [3, 1])]
    payload = json.loads(json.dumps(hook.payload()))
    again = PhaseGuide.from_payload(payload, {k: v.clone() for k, v in hook.tensors().items()})
    assert (again.texts, again.targets.tasks, again.keys) == (texts, 2, ("task",))
    unknown = replace(wanted, observation={**wanted.observation, "task": ["up", "left"]})
    with pytest.raises(ValueError, match="'up' is none of those"):
        sample_chunk(policy, unknown, hooks=[again])
    with pytest.raises(ValueError, match="phases are of 1 tasks, the texts of 2"):
        PhaseGuide(model(), targets(), config, texts=texts)


def test_a_failed_sampling_counts_nothing() -> None:
    policy = flow_policy()
    hook = guide(policy, switch=1e9, config=PhaseConfig(switch_decisions=1, switch_margin=-1e9))

    class Breaks(Capture):
        order = 99

        def step(self, state):
            if state.index == state.steps - 1:
                raise RuntimeError("broken")
            return state.x, state.velocity

    with pytest.raises(RuntimeError, match="broken"):
        sample_chunk(policy, asked(), noise_for(policy, 4), [hook, Breaks()])
    sample_chunk(policy, asked(), noise_for(policy, 4), [hook])
    assert hook.info()["reguide.phase"].tolist() == [0] * 4


def test_saved_and_read_back_it_guides_the_same() -> None:
    policy = flow_policy()
    hook = guide(policy, config=PhaseConfig(switch_margin=0.3))
    payload = json.loads(json.dumps(hook.payload()))
    again = PhaseGuide.from_payload(payload, {k: v.clone() for k, v in hook.tensors().items()})
    assert again.config == hook.config
    noise = noise_for(policy, 4)
    assert torch.equal(
        sample_chunk(policy, asked(), noise, [hook]), sample_chunk(policy, asked(), noise, [again])
    )


def test_rows_without_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match="give episode_ids"):
        sample_chunk(flow_policy(), request(1), hooks=[guide(flow_policy())])
