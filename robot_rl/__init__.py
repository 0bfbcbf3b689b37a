"""Refine a frozen diffusion or flow-matching robot policy without touching its weights.

Everything a user needs is re-exported here and imported on first use, so that ``import robot_rl`` stays fast
and needs no torch.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the lazy names are, for type checkers and editors
    from data.records import Episode as Episode
    from data.store import EpisodeStore as EpisodeStore
    from policies.checkpoint import load as load_policy
    from policies.checkpoint import save as save_policy
    from robot_rl.evaluate import EvaluateConfig as EvaluateConfig
    from robot_rl.evaluate import evaluate as evaluate
    from robot_rl.runs import RunDirectory as RunDirectory
    from robot_rl.statistics import paired_difference as paired_difference
    from robot_rl.statistics import wilson_interval as wilson_interval
    from sim.registry import make as make_env

_EXPORTS = {
    "Episode": "data.records:Episode",
    "EpisodeStore": "data.store:EpisodeStore",
    "EvaluateConfig": "robot_rl.evaluate:EvaluateConfig",
    "RunDirectory": "robot_rl.runs:RunDirectory",
    "evaluate": "robot_rl.evaluate:evaluate",
    "load_policy": "policies.checkpoint:load",
    "make_env": "sim.registry:make",
    "paired_difference": "robot_rl.statistics:paired_difference",
    "save_policy": "policies.checkpoint:save",
    "wilson_interval": "robot_rl.statistics:wilson_interval",
}

__all__ = [
    "Episode",
    "EpisodeStore",
    "EvaluateConfig",
    "RunDirectory",
    "evaluate",
    "load_policy",
    "make_env",
    "paired_difference",
    "save_policy",
    "wilson_interval",
]


def _refuse_hidden_packages() -> None:
    """Raise ImportError when another package or folder is found under the name of one of ours."""
    home = Path(__file__).resolve().parents[1]
    for name in ("data", "hardware", "policies", "sim"):
        spec = importlib.util.find_spec(name)
        if spec is None:  # not installed: importing it says so
            continue
        places = [Path(place).resolve() for place in spec.submodule_search_locations or [spec.origin or ""]]
        if home / name not in places:
            raise ImportError(
                f"another {name!r} hides robot-rl's package of that name: {places[0]}. "
                "Rename it, start Python from another folder, or use an environment of its own for robot-rl"
            )


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    if name not in _EXPORTS:
        raise AttributeError(f"module 'robot_rl' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, attribute = _EXPORTS[name].split(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


_refuse_hidden_packages()
