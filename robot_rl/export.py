"""A refined policy as a folder that LeRobot's own programs run."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.manifest import check_writable
from robot_rl.task_settings import TaskSettings

if TYPE_CHECKING:
    from policies.policy import Policy

_PLUGIN = "lerobot_policy_robot_rl"


@dataclass(frozen=True)
class ExportConfig(TaskSettings):
    """Write a refined policy as a LeRobot policy: the base by reference, the refiner in the folder."""

    policy: Path
    """folder or hub id of the base policy"""
    out: Path
    """folder to write; LeRobot reads it with --policy.path"""
    refiner: tuple[Path, ...] = ()
    """folders of what refines it, put together; none exports the bare base"""
    task: str = ""
    """task that says units, names and rate where the base does not"""
    revision: str | None = None
    """branch, tag or commit of the base on the hub"""
    seed: int = 1000
    """seed of the first episode; its noise is drawn from it"""
    device: str = "cpu"
    """torch device that is written into the folder; LeRobot's --policy.device wins"""


def export(config: ExportConfig) -> Path:
    """Write the folder.

    Args:
        config: Which policy, refiner and folder.

    Returns:
        The folder.

    Raises:
        ImportError: LeRobot or the plugin is not installed.
        ValueError: The folder holds something else, or the refiner was made for another base.
    """
    check_writable(config.out / "config.json", "out")
    if config.out.exists() and any(config.out.iterdir()) and not (config.out / "robot_rl.json").exists():
        raise ValueError(f"out is {config.out}, which holds other files; give a new folder.")
    plugin = {name: _plugin(f"{_PLUGIN}.{name}_robot_rl") for name in _PARTS}
    from policies.loading import source_text
    from robot_rl.parts import load_refiners

    base = _base(config)
    refiner = load_refiners(config.refiner) if config.refiner else None
    place = source_text(config.policy)
    settings = plugin["configuration"].RobotRlConfig(
        base=place,
        base_revision=config.revision,
        base_hash=base.hash(),
        refiner="refiner" if config.refiner else "",
        seed=config.seed,
        device=config.device,
    )
    policy = plugin["modeling"].RobotRlPolicy(settings, base, refiner, place)
    policy.save_pretrained(config.out)
    for pipeline in plugin["processor"].make_robot_rl_pre_post_processors(settings):
        pipeline.save_pretrained(config.out)
    return config.out


_PARTS = ("configuration", "modeling", "processor")


def _base(config: ExportConfig) -> Policy:
    from policies.loading import load

    options: dict[str, Any] = {"revision": config.revision}
    if not config.task:
        return load(config.policy, **options)
    import sim
    from sim.task import task_of

    with contextlib.closing(sim.make(config.task, **config.task_arguments)) as env:
        task = task_of(env)
        options |= {"default_features": dict(task.features), "default_action_spec": task.action_spec}
        return load(config.policy, **options)


def _plugin(module: str) -> Any:  # noqa: ANN401 - a module
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"Exporting needs LeRobot and {_PLUGIN}, which cannot be imported ({error}). `make setup` "
            f"installs both; elsewhere: pip install ./plugins/{_PLUGIN}",
            name=module,
        ) from error
