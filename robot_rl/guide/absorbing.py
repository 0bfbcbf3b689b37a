"""``robot-rl refine reguide``: phase-conditioned guidance, and policies trained on what it made succeed.

ReGuide (arXiv 2606.28939): each round collects successes of the guided policy and trains on demonstrations
and successes, either a student that goes on from the present policy ("ft") or a policy from scratch ("fs").
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from data.config import from_dict
from policies.flow import FlowPolicy
from robot_rl.base_policy import policy_for
from robot_rl.guide.collecting import Collector
from robot_rl.guide.phase_finding import find_phases_of_tasks
from robot_rl.guide.phases import count_through, reached_share
from robot_rl.guide.preparation import base_rollouts, prepare
from robot_rl.guide.reguide import PhaseGuide
from robot_rl.guide.summary import chunk_values
from robot_rl.one_pass import OnePass, refine_in_one_pass
from robot_rl.parts import version_of
from robot_rl.refiner import Refiner
from robot_rl.runs import RunDirectory
from robot_rl.student import Student
from robot_rl.train import TrainConfig, train

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from data.records import Episode
    from policies.policy import Policy
    from robot_rl.guide.reguide_config import Absorb, ReGuideConfig

logger = logging.getLogger(__name__)


def reguide(config: ReGuideConfig) -> Path:
    """Guide, collect, train, as many rounds as `config.absorb` names.

    Args:
        config: see `ReGuideConfig`.

    Returns:
        The run directory; its folder ``refiner`` is what ``--refiner`` loads: the last round's student, or
        the guidance itself without rounds. Each student is also a policy of its own, in ``round-N/policy``.

    Raises:
        RuntimeError: if the base's hash changed, or a round found no success.
        PolicyError: if the base is closed or keeps its features to itself.
        TypeError: if there are rounds, but a policy of the base's kind cannot be saved in a refiner.
    """
    return refine_in_one_pass(config, "reguide", lambda here: _Rounds(here).run())


class _Rounds:
    """The rounds of one run; each stage keeps what it made, so that a resumed run repeats nothing."""

    def __init__(self, here: OnePass[ReGuideConfig]) -> None:
        config = here.config
        self._here, self._config, self._run, self._base = here, config, here.run, here.policy
        if config.absorb:
            Student(self._base)  # what cannot be saved in a refiner is refused before the work
        self._collector = Collector(config, self._base, here.run.path, config.rows)
        self._stores: list[Path] = []
        self._facts: dict[str, Any] = {"rounds": [], "env_steps": 0}

    def run(self) -> tuple[Refiner, dict[str, Any]]:
        """Collect and train; the refiner and what the result says."""
        config, path = self._config, self._run.path
        if config.guide:
            store = path / "episodes"
            self._count(base_rollouts(config, store, self._collector, self._base))
            self._stores.append(store)
        present, folder = self._base, config.policy
        for number, kind in enumerate(config.absorb, 1):
            place = path / f"round-{number}"
            found = self._collect(place, self._refiner(place, present, acting=number > 1))
            folder = train(self._training(kind, folder, place / "policy"))
            present = policy_for(folder, self._collector.task, config.device)
            self._run.log(number, {"round": number, **_flat(found)})
            self._facts["rounds"].append({"kind": kind, "policy": str(folder.relative_to(path)), **found})
        if config.absorb:
            refiner = Refiner(student=Student(present))
        else:
            refiner = self._refiner(path, present, acting=False)
            trial = config.waves(config.trial_episodes)
            shown = [episode for _ in range(trial) for episode in self._collector.run(refiner)]
            self._count(shown)
            self._facts["trial"] = _summary(shown)
        return self._here.save(refiner, guide=config.guide), self._facts

    def _refiner(self, place: Path, present: Policy, *, acting: bool) -> Refiner:
        """What collects a round: the present policy in the base's place, guided if that is asked for."""
        student = Student(present) if acting else None
        if not self._config.guide:
            return Refiner(student=student)
        config = self._config
        prepared = prepare(config, place / "dynamics", present, self._stores, config.data)
        targets = find_phases_of_tasks(prepared.frames, prepared.texts, config.phases, config.seed)
        span = present.spec.executed_steps
        counted = count_through(prepared.frames, targets, config.phases, span, prepared.texts)
        reached = reached_share(counted, config.phases.phases)
        known = {**prepared.check.to_json(), "demonstrations_counted_through": reached}
        self._facts.setdefault("models", []).append(known)
        scale = config.scale / float(targets.temperature.mean())
        hook = PhaseGuide(
            prepared.model,
            targets,
            config.phases,
            scale=scale,
            guided_steps=config.guided_steps,
            texts=prepared.texts,
        )
        refiner = Refiner(student=student, hooks=(hook,), base_hash=self._here.base_hash)
        return replace(refiner, version=version_of(refiner))

    def _collect(self, place: Path, refiner: Refiner) -> dict[str, Any]:
        config = self._config
        store = self._collector.store(place / "episodes")
        episodes = self._collector.collect(
            store,
            config.waves(config.attempts),
            lambda _: refiner,
            name="Collecting " + ("guided rollouts" if config.guide else "rollouts"),
            successes=config.successes,
        )
        self._count(episodes)
        self._stores.append(store.path)
        found = _summary(episodes)
        if not found["successes"]:
            raise RuntimeError(
                f"none of {len(episodes)} rollouts succeeded, so there is nothing to learn from: start from "
                "a better base, or allow more attempts"
            )
        if found["successes"] < config.successes:
            logger.warning(
                "only %d successes in %d attempts, %d were asked for",
                found["successes"],
                len(episodes),
                config.successes,
            )
        return found

    def _training(self, kind: Absorb, present: Path, out: Path) -> TrainConfig:
        """How a round trains; the successes of all rounds take part."""
        config = self._config
        rounds = tuple(path for path in self._stores if path.parent != self._run.path)
        recipe = base_recipe(config.policy, self._base, config.data)
        also = (*recipe.also, *rounds)
        recipe = replace(recipe, out=out, also=also, seed=config.seed, device=config.device, resume=True)
        if kind == "fs":
            return recipe
        return replace(
            recipe,
            start=present,
            also_share=config.tune.share,
            steps=config.tune.steps,
            learning_rate=config.tune.learning_rate,
            warmup=config.tune.warmup,
        )

    def _count(self, episodes: Sequence[Episode]) -> None:
        self._facts["env_steps"] += sum(map(len, episodes))


def base_recipe(folder: Path, policy: Policy, data: Path) -> TrainConfig:
    """How a base was trained, to train like it again.

    Args:
        folder: of the base: a run of ``robot-rl train``, or a saved policy.
        policy: the base; of a saved policy only its shape is known, so the rest is the defaults.
        data: demonstrations.

    Raises:
        TypeError: if it is neither such a run nor a `FlowPolicy`.
    """
    if (folder / "config.json").exists():
        run = RunDirectory.open(folder)
        if run.kind == "train":
            own = {"data": str(data), "out": str(folder), "resume": False, "wandb": False}
            return from_dict(TrainConfig, {**run.config, **own})
    if not isinstance(policy, FlowPolicy):
        raise TypeError(
            f"{folder} is no run of robot-rl train and its policy a {type(policy).__name__}: how to train "
            "one like it is not known"
        )
    return TrainConfig(data=data, out=folder, network=policy.config)


def _summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Numbers of a collection, and what guidance did in it."""
    successes = sum(episode.success for episode in episodes)
    found: dict[str, Any] = {"episodes": len(episodes), "successes": successes}
    if not episodes or "reguide.active" not in episodes[0].extra:
        return found
    active = chunk_values(episodes, "reguide.active")
    counts = Counter(chunk_values(episodes, "reguide.phase").astype(int).tolist())
    per_phase = [counts[phase] for phase in range(max(counts) + 1)]
    return {**found, "guided_share": float(active.mean()), "chunks_per_phase": per_phase}


def _flat(found: dict[str, Any]) -> dict[str, float]:
    numbers = {key: value for key, value in found.items() if isinstance(value, int | float)}
    phases = {f"phase_{i}_chunks": count for i, count in enumerate(found.get("chunks_per_phase", []))}
    return {**numbers, **phases}
