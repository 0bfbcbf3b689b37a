"""Refine a frozen diffusion or flow-matching robot policy without touching its weights.

Everything a user needs is re-exported here and imported on first use, so that ``import robot_rl`` stays fast
and needs no torch.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the lazy names are, for type checkers and editors
    from data.events import Event as Event
    from data.features import Feature as Feature
    from data.formats.registry import load as load_format
    from data.formats.registry import open_source as open_source
    from data.images import PictureCodec as PictureCodec
    from data.labels import imitation_actions as imitation_actions
    from data.labels import label as label_episode
    from data.random_access import StoredChunks as StoredChunks
    from data.recording.process import RecordingProcess as RecordingProcess
    from data.recording.realtime import realtime as realtime
    from data.records import Episode as Episode
    from data.records import Step as Step
    from data.replay import Fresh as Fresh
    from data.replay import PerTask as PerTask
    from data.replay import Prioritised as Prioritised
    from data.replay import Recent as Recent
    from data.replay import ReplayBuffer as ReplayBuffer
    from data.replay import sample_mixture as sample_mixture
    from data.steps_view import at_steps as at_steps
    from data.store import EpisodeStore as EpisodeStore
    from data.validate import Thresholds as Thresholds
    from data.validate import validate as validate_data
    from hardware.action_spec import ActionGroup as ActionGroup
    from hardware.action_spec import ActionSpec as ActionSpec
    from hardware.clock import WallClock as WallClock
    from policies.checkpoint import save as save_policy
    from policies.conformance import check_policy as check_policy
    from policies.hashing import policy_hash as policy_hash
    from policies.hooks import DenoiseHook as DenoiseHook
    from policies.hooks import DenoiseState as DenoiseState
    from policies.loading import load as load_policy
    from policies.policy import Policy as Policy
    from policies.policy import PolicySpec as PolicySpec
    from policies.request import ChunkRequest as ChunkRequest
    from policies.sampler import sample_chunk as sample_chunk
    from robot_rl.collect import CollectConfig as CollectConfig
    from robot_rl.collect import collect as collect_episodes
    from robot_rl.control import ControlLoop as ControlLoop
    from robot_rl.control import run_wave as run_wave
    from robot_rl.correct.corrector import Correction as Correction
    from robot_rl.correct.corrector import Corrector as Corrector
    from robot_rl.correct.corrector import CorrectorInput as CorrectorInput
    from robot_rl.correct.residual_recipe import RefineConfig as RefineConfig
    from robot_rl.critics.curves import open_critic as open_critic
    from robot_rl.evaluate import EvaluateConfig as EvaluateConfig
    from robot_rl.evaluate import evaluate as evaluate_policy
    from robot_rl.method_config import MethodConfig as MethodConfig
    from robot_rl.methods import Method as Method
    from robot_rl.methods import load_base as load_base
    from robot_rl.methods import refine as refine_policy
    from robot_rl.noise.policy import NoisePolicy as NoisePolicy
    from robot_rl.parts import load_refiner as load_refiner
    from robot_rl.parts import load_refiners as load_refiners
    from robot_rl.parts import save_refiner as save_refiner
    from robot_rl.planner import BackgroundPlanner as BackgroundPlanner
    from robot_rl.refiner import Refiner as Refiner
    from robot_rl.runs import RunDirectory as RunDirectory
    from robot_rl.select.selector import Selector as Selector
    from robot_rl.statistics import paired_difference as paired_difference
    from robot_rl.statistics import wilson_interval as wilson_interval
    from robot_rl.stepper import Stepper as Stepper
    from robot_rl.train import TrainConfig as TrainConfig
    from robot_rl.train import train as train_policy
    from sim.conformance import check_task as check_task
    from sim.registry import make as make_env
    from sim.shifts import Shifts as Shifts

# No name here may be that of a submodule: importing the submodule would put it in the name's place.
_EXPORTS = {
    "ActionGroup": "hardware.action_spec:ActionGroup",
    "ActionSpec": "hardware.action_spec:ActionSpec",
    "BackgroundPlanner": "robot_rl.planner:BackgroundPlanner",
    "ChunkRequest": "policies.request:ChunkRequest",
    "CollectConfig": "robot_rl.collect:CollectConfig",
    "ControlLoop": "robot_rl.control:ControlLoop",
    "Correction": "robot_rl.correct.corrector:Correction",
    "Corrector": "robot_rl.correct.corrector:Corrector",
    "CorrectorInput": "robot_rl.correct.corrector:CorrectorInput",
    "DenoiseHook": "policies.hooks:DenoiseHook",
    "DenoiseState": "policies.hooks:DenoiseState",
    "Episode": "data.records:Episode",
    "EpisodeStore": "data.store:EpisodeStore",
    "EvaluateConfig": "robot_rl.evaluate:EvaluateConfig",
    "Event": "data.events:Event",
    "Feature": "data.features:Feature",
    "Fresh": "data.replay:Fresh",
    "Method": "robot_rl.methods:Method",
    "MethodConfig": "robot_rl.method_config:MethodConfig",
    "NoisePolicy": "robot_rl.noise.policy:NoisePolicy",
    "PerTask": "data.replay:PerTask",
    "PictureCodec": "data.images:PictureCodec",
    "Policy": "policies.policy:Policy",
    "PolicySpec": "policies.policy:PolicySpec",
    "Prioritised": "data.replay:Prioritised",
    "Recent": "data.replay:Recent",
    "RecordingProcess": "data.recording.process:RecordingProcess",
    "RefineConfig": "robot_rl.correct.residual_recipe:RefineConfig",
    "Refiner": "robot_rl.refiner:Refiner",
    "ReplayBuffer": "data.replay:ReplayBuffer",
    "RunDirectory": "robot_rl.runs:RunDirectory",
    "Selector": "robot_rl.select.selector:Selector",
    "Shifts": "sim.shifts:Shifts",
    "Step": "data.records:Step",
    "Stepper": "robot_rl.stepper:Stepper",
    "StoredChunks": "data.random_access:StoredChunks",
    "Thresholds": "data.validate:Thresholds",
    "TrainConfig": "robot_rl.train:TrainConfig",
    "WallClock": "hardware.clock:WallClock",
    "at_steps": "data.steps_view:at_steps",
    "realtime": "data.recording.realtime:realtime",
    "check_policy": "policies.conformance:check_policy",
    "check_task": "sim.conformance:check_task",
    "collect_episodes": "robot_rl.collect:collect",
    "evaluate_policy": "robot_rl.evaluate:evaluate",
    "imitation_actions": "data.labels:imitation_actions",
    "label_episode": "data.labels:label",
    "load_base": "robot_rl.methods:load_base",
    "load_format": "data.formats.registry:load",
    "load_policy": "policies.loading:load",
    "load_refiner": "robot_rl.parts:load_refiner",
    "load_refiners": "robot_rl.parts:load_refiners",
    "make_env": "sim.registry:make",
    "open_critic": "robot_rl.critics.curves:open_critic",
    "open_source": "data.formats.registry:open_source",
    "paired_difference": "robot_rl.statistics:paired_difference",
    "policy_hash": "policies.hashing:policy_hash",
    "refine_policy": "robot_rl.methods:refine",
    "run_wave": "robot_rl.control:run_wave",
    "sample_chunk": "policies.sampler:sample_chunk",
    "sample_mixture": "data.replay:sample_mixture",
    "save_policy": "policies.checkpoint:save",
    "save_refiner": "robot_rl.parts:save_refiner",
    "train_policy": "robot_rl.train:train",
    "validate_data": "data.validate:validate",
    "wilson_interval": "robot_rl.statistics:wilson_interval",
}

__all__ = [
    "ActionGroup",
    "ActionSpec",
    "BackgroundPlanner",
    "ChunkRequest",
    "CollectConfig",
    "ControlLoop",
    "Correction",
    "Corrector",
    "CorrectorInput",
    "DenoiseHook",
    "DenoiseState",
    "Episode",
    "EpisodeStore",
    "EvaluateConfig",
    "Event",
    "Feature",
    "Fresh",
    "Method",
    "MethodConfig",
    "NoisePolicy",
    "PerTask",
    "PictureCodec",
    "Policy",
    "PolicySpec",
    "Prioritised",
    "Recent",
    "RecordingProcess",
    "RefineConfig",
    "Refiner",
    "ReplayBuffer",
    "RunDirectory",
    "Selector",
    "Shifts",
    "Step",
    "Stepper",
    "StoredChunks",
    "Thresholds",
    "TrainConfig",
    "WallClock",
    "at_steps",
    "check_policy",
    "check_task",
    "collect_episodes",
    "evaluate_policy",
    "imitation_actions",
    "label_episode",
    "load_base",
    "load_format",
    "load_policy",
    "load_refiner",
    "load_refiners",
    "make_env",
    "open_critic",
    "open_source",
    "paired_difference",
    "policy_hash",
    "realtime",
    "refine_policy",
    "run_wave",
    "sample_chunk",
    "sample_mixture",
    "save_policy",
    "save_refiner",
    "train_policy",
    "validate_data",
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
