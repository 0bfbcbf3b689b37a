"""All findings about one policy, in the order in which one reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.lerobot.files import locate
from policies.lerobot.mapping import FILE, RobotMapping, read_mapping
from policies.loading import load, source_text
from robot_rl.doctor import Finding, Status
from robot_rl.policy_doctor.differences import compare, compare_mode, compare_values, renames
from robot_rl.policy_doctor.sides import data_side, robot_side, task_side
from robot_rl.policy_doctor.trial import request_for, try_latency, try_methods, try_parity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policies.policy import Policy
    from robot_rl.policy_doctor.questions import PolicyQuestions
    from robot_rl.policy_doctor.sides import Side


def examine_policy(questions: PolicyQuestions) -> Iterator[Finding]:
    """Compare a policy with robot and recordings, and try it out.

    Args:
        questions: with a policy.

    Raises:
        CheckpointError: there is no policy, or it cannot be read.
        ValueError: there is no such task, robot or recording.
    """
    assert questions.policy is not None, "checked by the caller"
    data = None if questions.data is None else data_side(questions.data)
    robot = _robot(questions)
    sides = [side for side in (robot, data) if side is not None]
    policy = _open(questions, sides, {})
    keys = renames(policy.spec, sides[0]) if sides and hasattr(policy, "processors") else {}
    if keys:
        policy = _open(questions, sides, keys)
    yield _described(policy)
    for side in sides:
        yield from compare(policy, side, keys if side is sides[0] else {})
    if data is not None:
        yield from compare_values(policy, data)
        mode = compare_mode(policy, data)
        yield from () if mode is None else (mode,)
    yield from _mapping(questions, policy, robot or data, keys)
    request, what = request_for(policy, data)
    yield try_parity(policy, request, what)
    yield from try_latency(policy, request, questions.chunks)
    yield from try_methods(policy)


def fits(findings: list[Finding]) -> bool:
    """Whether nothing differs."""
    return all(finding.status is not Status.DIFFERS for finding in findings)


def _robot(questions: PolicyQuestions) -> Side | None:
    if questions.robot:
        return robot_side(questions.robot)
    return task_side(questions.task, questions) if questions.task else None


def _open(questions: PolicyQuestions, sides: list[Side], keys: Mapping[str, str]) -> Policy:
    """The policy; what it does not say itself is taken from the robot, or from recordings."""
    assert questions.policy is not None
    options: dict[str, Any] = {"revision": questions.revision, "keys": dict(keys) or None}
    if sides:
        options["default_features"] = dict(sides[0].features)
    options["default_action_spec"] = next((s.action_spec for s in sides if s.action_spec is not None), None)
    return load(questions.policy, questions.device, **options)


def _described(policy: Policy) -> Finding:
    spec = policy.spec
    detail = (
        f"{spec.name}: chunks of {spec.horizon} at {spec.rate_hz:g} Hz, {spec.executed_steps} executed, "
        f"{spec.observation_steps} observation{'s' if spec.observation_steps > 1 else ''} read"
    )
    return Finding("policy", Status.OK, detail)


def _mapping(
    questions: PolicyQuestions, policy: Policy, side: Side | None, keys: Mapping[str, str]
) -> Iterator[Finding]:
    """Write or propose the file that says what a LeRobot checkpoint does not."""
    if side is None or not hasattr(policy, "processors"):
        return
    assert questions.policy is not None
    folder = locate(source_text(questions.policy), questions.revision)
    if not questions.write_mapping:
        there = (folder / FILE).is_file()
        detail = f"{FILE} is {'there' if there else 'not there'}"
        yield Finding("mapping", Status.OK if there else Status.OPTIONAL, detail, "give --write-mapping")
        return
    old, spec = read_mapping(folder), policy.spec
    fitting = side.action_spec is not None and side.action_spec.size == spec.action_size
    mapping = RobotMapping(
        rate_hz=spec.rate_hz,
        action_spec=side.action_spec if fitting else old.action_spec,
        features={key: f for key, f in side.features.items() if _same(f, spec.features.get(key))},
        keys={**old.keys, **keys},
        local=old.local,
    )
    yield Finding("mapping", Status.OK, f"{mapping.write(folder)} written; it is read with the checkpoint")


def _same(ours: Any, theirs: Any) -> bool:  # noqa: ANN401 - features, or none
    return theirs is not None and (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
