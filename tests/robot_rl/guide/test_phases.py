"""Phases found in demonstrations of a walk along a line, and the counting of them."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

from robot_rl.guide.frames import Frames
from robot_rl.guide.phase_finding import find_phases, find_phases_of_tasks
from robot_rl.guide.phases import PhaseConfig, PhaseTargets, Progress, count_through, reached_share, softmin
from robot_rl.task_texts import TaskTexts


def walk(demonstrations: int = 12, length: int = 60, seed: int = 0) -> Frames:
    """Each demonstration goes from 0 to 10 along the first axis, at a pace and with noise of its own."""
    rng = np.random.default_rng(seed)
    pace = rng.uniform(0.8, 1.25, demonstrations)
    time = np.linspace(0, 1, length)
    place = 10 * time[None] ** pace[:, None]
    latents = np.stack([place, np.sin(place)], 2) + 0.05 * rng.normal(size=(demonstrations, length, 2))
    owner = torch.arange(demonstrations).repeat_interleave(length)
    return Frames(
        torch.from_numpy(latents.reshape(-1, 2).astype(np.float32)),
        2,
        owner,
        torch.from_numpy(np.tile(time, demonstrations).astype(np.float32)),
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(0, 4, 2),
    )


CONFIG = PhaseConfig(phases=4, clusters=4, prototypes=20, restarts=5, switch_decisions=2)


@pytest.fixture(scope="module")
def found():
    frames = walk()
    return frames, *find_phases(frames, CONFIG, seed=0)


def test_phases_follow_each_other_along_the_task(found) -> None:
    frames, targets, phase = found
    place = frames.latents[:, 0].numpy()
    means = [place[phase == number].mean() for number in range(4)]
    assert means == sorted(means)
    assert means[0] < 2.5
    assert means[3] > 7.5
    assert targets.used.sum(1).tolist() == [20] * 4, "spread over the clusters in proportion"
    assert (targets.lower < targets.switch).all()
    assert (targets.switch < targets.upper).all()


def test_percentiles_are_those_of_the_phases_own_frames(found) -> None:
    frames, targets, phase = found
    for number in range(4):
        own = frames.latents[torch.from_numpy(phase == number)]
        distance = targets.distance(own, torch.full((len(own),), number))
        assert float((distance <= targets.lower[number]).float().mean()) == pytest.approx(0.5, abs=0.02)
        assert float((distance <= targets.upper[number]).float().mean()) == pytest.approx(0.9, abs=0.02)


def test_the_same_seed_gives_the_same_phases(found) -> None:
    frames, targets, _ = found
    again, _ = find_phases(frames, CONFIG, seed=0)
    assert all(torch.equal(targets.tensors()[key], value) for key, value in again.tensors().items())


def test_demonstrations_are_counted_through_to_the_last_phase_and_never_back(found, caplog) -> None:
    frames, targets, _ = found
    counted = count_through(frames, targets, CONFIG, executed=2)
    assert all(seen == sorted(seen) for seen in counted)
    assert reached_share(counted, 4) >= 0.95
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert reached_share(count_through(frames, targets, CONFIG, executed=20), 4) == 0.0
    assert "choose fewer phases" in caplog.text


def test_softmin_is_the_nearest_distance_at_low_temperature() -> None:
    latent = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    goals = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(1))
    used = torch.ones(5, 7, dtype=torch.bool)
    used[:, 5:] = False
    nearest = torch.linalg.vector_norm(latent[:, None] - goals[:, :5], dim=2).amin(1)
    torch.testing.assert_close(softmin(latent, goals, used, 1e-4), nearest, atol=1e-3, rtol=0)
    warm = softmin(latent, goals, used, torch.full((5,), 0.5))
    assert bool(((warm > nearest) & (warm < nearest + 0.5 * np.log(5) + 1e-6)).all())


def test_phases_of_different_temperature_and_number_compare() -> None:
    """Two phases with the same prototypes, of which one holds each twice, are equally far."""
    goals = torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(2))
    twice = torch.cat([goals, goals], dim=1)
    latent, flat = torch.zeros(1, 2), torch.ones(1)
    once = softmin(latent, goals, torch.ones(1, 4, dtype=torch.bool), flat)
    torch.testing.assert_close(softmin(latent, twice, torch.ones(1, 8, dtype=torch.bool), flat), once)
    far = torch.full((1, 3, 2), 5.0)
    used = torch.ones(1, 3, dtype=torch.bool)
    one, other = (softmin(latent, far, used, temperature * flat) for temperature in (0.1, 10.0))
    torch.testing.assert_close(one, other)


def test_two_decisions_in_a_row_are_needed_and_one_phase_is_taken_at_a_time() -> None:
    """Three phases at 0, 10 and 20 on a line."""
    goals = torch.tensor([[[0.0]], [[10.0]], [[20.0]]])
    flat = torch.ones(3)
    targets = PhaseTargets(goals, torch.ones(3, 1, dtype=torch.bool), flat, flat, 5 * flat, 2 * flat)
    config = PhaseConfig(phases=3, switch_decisions=2)
    at = Progress.start(torch.zeros(2, dtype=torch.int64))
    places = [[10.0, 0.0], [5.0, 10.0], [10.0, 0.0], [10.0, 10.0], [20.0, 10.0], [20.0, 20.0], [20.0, 20.0]]
    seen = []
    for place in places:
        at = at.advanced(torch.tensor(place)[:, None], targets, config)
        seen.append(at.phase.tolist())
    assert seen == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1], [2, 1], [2, 2]]


def both_ways() -> tuple[Frames, TaskTexts]:
    """Half of the demonstrations walk from 10 to 0 instead, which another text says."""
    frames = walk(24)
    back = frames.trajectory >= 12
    latents = frames.latents.clone()
    latents[back, 0] = 10 - latents[back, 0]
    told = ("go there",) * 12 + ("come back",) * 12
    return replace(frames, latents=latents, told=told), TaskTexts(("come back", "go there"))


def test_each_task_has_phases_of_its_own_and_is_counted_through_them() -> None:
    frames, texts = both_ways()
    targets = find_phases_of_tasks(frames, texts, CONFIG, seed=0)
    assert (targets.tasks, targets.count, len(targets.temperature)) == (2, 4, 8)
    place = (targets.prototypes[..., 0] * targets.used).sum(1) / targets.used.sum(1)
    assert (place[:4].diff() < 0).all(), "back"
    assert (place[4:].diff() > 0).all(), "there"
    counted = count_through(frames, targets, CONFIG, 2, texts)
    assert reached_share(counted, 4) >= 0.95
    mixed = find_phases_of_tasks(frames, TaskTexts(), CONFIG, seed=0)
    assert reached_share(count_through(frames, mixed, CONFIG, 2), 4) < 0.95
    again = PhaseTargets.from_tensors(targets.tensors(), tasks=2)
    assert again.count == 4


def test_a_task_ends_with_its_own_last_phase() -> None:
    """Two tasks with phases at 0 and 10, and at 20 and 30, on a line."""
    goals = torch.tensor([[[0.0]], [[10.0]], [[20.0]], [[30.0]]])
    flat = torch.ones(4)
    used = torch.ones(4, 1, dtype=torch.bool)
    targets = PhaseTargets(goals, used, flat, flat, 5 * flat, 2 * flat, tasks=2)
    at = Progress.start(torch.tensor([0, 2]))
    config = PhaseConfig(phases=2, switch_decisions=1)
    for places, expected in (([10.0, 30.0], [1, 3]), ([20.0, 0.0], [1, 3])):
        at = at.advanced(torch.tensor(places)[:, None], targets, config)
        assert at.phase.tolist() == expected


def test_phases_of_tasks_with_fewer_prototypes_are_filled_up() -> None:
    one, two = (
        find_phases(walk(count), replace(CONFIG, prototypes=n), 0)[0] for count, n in ((12, 20), (12, 6))
    )
    joined = PhaseTargets.joined([one, two])
    assert joined.used.sum(1).tolist() == [20] * 4 + [6] * 4
    latent = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    own = two.distance(latent, torch.arange(4))
    torch.testing.assert_close(joined.distance(latent, torch.arange(4, 8)), own)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lower": 90.0}, "nothing lies between"),
        ({"switch": 0.0}, "switch is 0"),
        ({"phases": 0}, "phases is 0"),
    ],
)
def test_senseless_settings_are_refused(wrong, message) -> None:
    with pytest.raises(ValueError, match=message):
        PhaseConfig(**wrong)


def test_too_few_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 9 phases"):
        find_phases(walk(2, 6), PhaseConfig(phases=9), seed=0)
