"""Which refinement methods there are, how one is found and run, and what each needs of the base.

Others add theirs without an edit here: with ``module:NAME`` of a `Method` in place of a name, or with an
entry point in the group ``robot_rl.methods`` whose value is that.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.hints import did_you_mean
from data.imports import ImportPathError, import_object, import_path

if TYPE_CHECKING:
    from policies.policy import Policy
    from robot_rl.method_config import MethodConfig  # noqa: TC004 - imports the simulation

logger = logging.getLogger(__name__)

ENTRY_POINTS = "robot_rl.methods"
"""Entry point group under which other packages register methods."""
NEEDS = {
    "noise": "takes the noise it starts from",
    "velocity": "opens its denoising",
    "gradients": "lets its velocity be differentiated",
}
"""What a method can need, each a field of `policies.policy.Supports`, and what it means."""


@dataclass(frozen=True)
class Method:
    """A refinement method.

    Attributes:
        name: As on the command line.
        summary: One line for people.
        config: Its configuration, a `MethodConfig`, or ``module:Class`` of it.
        run: Called with the configuration; gives the run directory, whose folder ``refiner`` is what
            ``--refiner`` loads. Or ``module:function`` of it.
        needs: What the base must support, from `NEEDS`.
    """

    name: str
    summary: str
    config: str | type[MethodConfig]
    run: str | Callable[[Any], Path]
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the needs."""
        if unknown := sorted(set(self.needs) - NEEDS.keys()):
            raise ValueError(f"{self.name}: needs {unknown} are unknown; known are {', '.join(NEEDS)}.")

    def config_class(self) -> type[MethodConfig]:
        """Class of the configuration.

        Raises:
            ValueError: It cannot be imported, or is no `MethodConfig`.
        """
        from robot_rl.method_config import MethodConfig

        found = import_object(self.config) if isinstance(self.config, str) else self.config
        if not (isinstance(found, type) and issubclass(found, MethodConfig)):
            raise ValueError(  # noqa: TRY004 - what the method names is wrong
                f"{self.name}: {self.config!r} does not derive from robot_rl.MethodConfig."
            )
        return found

    def __call__(self, config: MethodConfig) -> Path:
        """Refine; see `run`."""
        run = import_object(self.run) if isinstance(self.run, str) else self.run
        folder: Path = run(config)
        return folder


METHODS = {
    method.name: method
    for method in (
        Method(
            "residual",
            "learn a bounded correction of each action from success and failure",
            "robot_rl.correct.residual_recipe:RefineConfig",
            "robot_rl.correct.residual_recipe:refine",
        ),
        Method(
            "dsrl",
            "choose the noise that the base denoises, learned from success and failure",
            "robot_rl.noise.dsrl:DsrlConfig",
            "robot_rl.noise.dsrl:dsrl",
            needs=("noise",),
        ),
        Method(
            "lpb",
            "steer the denoising back to demonstrated states when the policy has strayed (no reward)",
            "robot_rl.guide.lpb:LpbConfig",
            "robot_rl.guide.lpb:lpb",
            needs=("velocity", "gradients"),
        ),
        Method(
            "critic",
            "value the policy's own chunks, then climb that value in the denoising, or take the best of N",
            "robot_rl.guide.critic_method:CriticConfig",
            "robot_rl.guide.critic_method:refine_by_value",
            needs=("noise",),
        ),
        Method(
            "pps",
            "steer towards a task that the policy lacks, from demonstrations, with two small flows",
            "robot_rl.guide.pps:PpsConfig",
            "robot_rl.guide.pps:pps",
            needs=("velocity",),
        ),
        Method(
            "rtc",
            "join each chunk to the last, for a policy that is slower than the robot; learns nothing",
            "robot_rl.guide.real_time_method:RealTimeMethodConfig",
            "robot_rl.guide.real_time_method:make_real_time",
            needs=("velocity",),
        ),
        Method(
            "reguide",
            "guide by phases of the task, then train on what succeeded under guidance",
            "robot_rl.guide.reguide_config:ReGuideConfig",
            "robot_rl.guide.absorbing:reguide",
            needs=("velocity",),
        ),
    )
}
"""Methods of this package by name."""


def known() -> dict[str, Method]:
    """Every method by the name it is found under, ours first; broken ones of others are left out."""
    found = dict(METHODS)
    for name in _entry_points():
        if name not in found:
            try:
                found[name] = find(name)
            except ValueError as error:
                logger.warning("%s It is left out.", error)
    return found


def find(reference: str) -> Method:
    """The method of a name or of ``module:NAME``.

    Raises:
        ValueError: The name is unknown (near misses are named), or what it leads to is no `Method`.
    """
    if reference in METHODS:
        return METHODS[reference]
    path = _entry_points().get(reference, reference)
    if ":" not in path:
        names = [*METHODS, *_entry_points()]
        hint = did_you_mean(reference, names, f"known: {', '.join(names)}.", likeness=0.5)
        raise ValueError(f"No method is called {reference!r}; {hint} Or give module:NAME.")
    try:
        found = import_object(path)
    except ImportPathError as error:
        raise ValueError(f"Method {error}.") from error
    if not isinstance(found, Method):
        raise ValueError(f"{path!r} is no robot_rl.Method.")  # noqa: TRY004 - the caller's text is wrong
    return found


def refine(config: MethodConfig) -> Path:
    """Refine a policy with the method that a configuration belongs to; the base's weights do not change.

    Args:
        config: Of one of the methods of this package or of an entry point.

    Returns:
        The run directory; its folder ``refiner`` is what ``--refiner`` loads.

    Raises:
        ValueError: No method has this configuration.
    """
    wanted = import_path(type(config))
    for method in known().values():
        if method.config in (wanted, type(config)):
            return method(config)
    raise ValueError(f"No method has the configuration {wanted}; call the method's own function.")


def load_base(config: MethodConfig, method: str | Method) -> Policy:
    """Load the policy that a method refines; the one place where a base is refused.

    Args:
        config: Names it, its device, and the task that says what it does not say itself.
        method: Name of one of ours, or the method.

    Raises:
        PolicyError: It lacks what the method needs; names what would work instead.
        CheckpointError: There is none, or it is damaged.
    """
    import sim
    from robot_rl.base_policy import policy_for
    from sim.task import task_of

    with contextlib.closing(sim.make(config.task, **config.task_arguments)) as env:
        policy = policy_for(config.policy, task_of(env), config.device)
    check_base(policy, METHODS[method] if isinstance(method, str) else method)
    return policy


def check_base(policy: Policy, method: Method) -> None:
    """Refuse a policy that lacks what a method needs.

    Raises:
        PolicyError: It does; names the policy, the method, what is missing and the methods that would work.
    """
    from policies.policy import PolicyError

    supports = policy.spec.supports
    if not (missing := [need for need in method.needs if not getattr(supports, need)]):
        return
    able = [each.name for each in METHODS.values() if all(getattr(supports, need) for need in each.needs)]
    raise PolicyError(
        f"{method.name} needs a policy that {' and '.join(NEEDS[need] for need in missing)}; "
        f"{policy.spec.name!r} does not. Methods that it allows: {', '.join(able)}."
    )


def check_unchanged(policy: Policy, before: str) -> str:
    """Return the hash of a base after a run.

    Args:
        policy: The base.
        before: Its hash when the run began.

    Raises:
        RuntimeError: It is another one.
    """
    if (after := policy.hash()) != before:
        raise RuntimeError(f"The base changed during refinement: {before} before, {after} after.")
    return after


def _entry_points() -> dict[str, str]:
    return {entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
