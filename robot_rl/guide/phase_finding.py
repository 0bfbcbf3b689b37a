"""Finds the phases of a task in demonstrations.

ReGuide (arXiv 2606.28939), its targets: frames are clustered, clusters ordered by when they occur and merged
into phases; each phase keeps some prototypes, a softmin distance to them, and thresholds on it.

Deviation: differences to the frame before are weighted after all columns were brought to the same spread.
Before, as in the released code, the weights would cancel out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.cluster.vq import kmeans, vq
from torch import Tensor

from robot_rl.guide.phases import PhaseConfig, PhaseTargets, softmin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from robot_rl.guide.frames import Frames
    from robot_rl.task_texts import TaskTexts


def find_phases(frames: Frames, config: PhaseConfig, seed: int) -> tuple[PhaseTargets, NDArray[np.int64]]:
    """Find phases in demonstrations.

    Args:
        frames: scaled.
        config: see `PhaseConfig`.
        seed: of the clustering.

    Returns:
        The targets, and the phase of each frame, (N,).

    Raises:
        ValueError: if the frames fall into fewer clusters than there are phases.
    """
    components = _components(frames, config)
    label = _clusters(components, config, seed)
    time = frames.time.numpy()
    phase_of_cluster = _merge(label, time, config.phases)
    phase = phase_of_cluster[label]
    chosen = [
        _prototypes(components, label, time, phase == number, config) for number in range(config.phases)
    ]
    return _targets(frames.latents, phase, chosen, config), phase


def find_phases_of_tasks(frames: Frames, texts: TaskTexts, config: PhaseConfig, seed: int) -> PhaseTargets:
    """Find the phases of each task in its own demonstrations; see `find_phases`.

    Args:
        frames: scaled, of all tasks.
        texts: of the tasks.
        config: see `PhaseConfig`; each task has as many phases.
        seed: of the clustering.
    """
    if not texts.size:
        return find_phases(frames, config, seed)[0]
    task = frames.tasks(texts)
    each = [find_phases(frames.chosen(task == number), config, seed)[0] for number in range(texts.count)]
    return PhaseTargets.joined(each)


def _components(frames: Frames, config: PhaseConfig) -> NDArray[np.float64]:
    """Principal components of latents and their differences to the frame before, (N, K)."""
    latents = frames.latents.numpy().astype(np.float64)
    owner = frames.trajectory.numpy()
    change = np.diff(latents, axis=0, prepend=latents[:1])
    change[np.diff(owner, prepend=owner[0] - 1) != 0] = 0.0
    columns = np.concatenate([_standard(latents), config.difference * _standard(change)], axis=1)
    left, scale, _ = np.linalg.svd(columns - columns.mean(0), full_matrices=False)
    return np.asarray((left * scale)[:, : config.components])


def _standard(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((columns - columns.mean(0)) / np.maximum(columns.std(0), 1e-6))


def _clusters(components: NDArray[np.float64], config: PhaseConfig, seed: int) -> NDArray[np.int64]:
    count = min(config.phases * config.clusters, len(components) // 2)
    generator = np.random.default_rng(seed)
    centres, _ = kmeans(components, count, iter=config.restarts, rng=generator)  # type: ignore[arg-type] # the stubs know no axes but Never
    label, _ = vq(components, centres)
    _, found = np.unique(label, return_inverse=True)
    if found.max() + 1 < config.phases:
        raise ValueError(
            f"{len(components)} demonstrated frames fall into {found.max() + 1} clusters, fewer than "
            f"{config.phases} phases: give more demonstrations or fewer phases"
        )
    return np.asarray(found, np.int64)


def _merge(label: NDArray[np.int64], time: NDArray[np.floating], phases: int) -> NDArray[np.int64]:
    """Phase of each cluster: by the part of an episode in which its median frame lies."""
    median = np.array([np.median(time[label == cluster]) for cluster in range(label.max() + 1)])
    phase = np.minimum((median * phases).astype(np.int64), phases - 1)
    if len(np.unique(phase)) == phases:
        return phase
    # A phase would be empty: equal numbers of clusters each instead, in their order.
    parts = np.array_split(np.argsort(median, kind="stable"), phases)
    for number, clusters in enumerate(parts):
        phase[clusters] = number
    return phase


def _prototypes(
    components: NDArray[np.float64],
    label: NDArray[np.int64],
    time: NDArray[np.floating],
    inside: NDArray[np.bool_],
    config: PhaseConfig,
) -> NDArray[np.int64]:
    """Frames of one phase that are typical of its clusters, in proportion to their sizes."""
    # Of few frames a third at most, or most distances to the nearest prototype would be zero.
    wanted = max(1, min(config.prototypes, int(inside.sum()) // 3))
    clusters, sizes = np.unique(label[inside], return_counts=True)
    quota = np.diff(np.round(np.cumsum(sizes) / sizes.sum() * wanted).astype(np.int64), prepend=0)
    chosen = []
    for cluster, count in zip(clusters, quota, strict=True):
        rows = np.flatnonzero(label == cluster)
        away = np.linalg.norm(components[rows] - components[rows].mean(0), axis=1)
        score = away + np.abs(time[rows] - np.median(time[rows]))
        chosen.append(rows[np.argsort(score, kind="stable")[:count]])
    return np.concatenate(chosen)


def _targets(
    latents: Tensor, phase: NDArray[np.int64], chosen: list[NDArray[np.int64]], config: PhaseConfig
) -> PhaseTargets:
    most = max(map(len, chosen))
    prototypes = torch.zeros(len(chosen), most, latents.shape[1])
    used = torch.zeros(len(chosen), most, dtype=torch.bool)
    found: dict[str, list[float]] = {name: [] for name in ("temperature", "lower", "upper", "switch")}
    for number, rows in enumerate(chosen):
        prototypes[number, : len(rows)] = latents[torch.from_numpy(rows)]
        used[number, : len(rows)] = True
        own = latents[torch.from_numpy(phase == number)]
        nearest = torch.cdist(own, prototypes[number, : len(rows)]).amin(1)
        temperature = max(float(np.percentile(nearest.numpy(), config.temperature)), 1e-3)
        found["temperature"].append(temperature)
        shape = (len(own), *prototypes.shape[1:])
        distance = softmin(own, prototypes[number].expand(shape), used[number].expand(shape[:2]), temperature)
        for name in ("lower", "upper", "switch"):
            found[name].append(float(np.percentile(distance.numpy(), getattr(config, name))))
    known = {name: torch.tensor(values) for name, values in found.items()}
    return PhaseTargets.from_tensors({"prototypes": prototypes, "used": used, **known})
