"""What robomimic's names and environment arguments say: keys of observations, rotations, actions, rates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from data.features import Feature
from data.formats.recorded import safe_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

ROBOSUITE = 1
"""Environment type of robosuite in ``env_args``."""
_IMAGE = "observation.images."
_QUATERNION = re.compile(r"_quat(_site)?$")
_ARM_WIDTH = {"OSC_POSE": 6, "OSC_POSITION": 3}


def file_name(key: str) -> str:
    """Name of an observation in the file: ``observation.images.wrist`` is ``wrist_image`` there."""
    if key.startswith(_IMAGE):
        return f"{key.removeprefix(_IMAGE)}_image"
    return key.removeprefix("observation.")


def observation_key(name: str, picture: bool) -> str:
    """Key of an observation that another program wrote.

    Args:
        name: Its name in the file.
        picture: Whether it holds (height, width, channels) of 8-bit values.
    """
    return f"{_IMAGE}{safe_key(name).removesuffix('_image')}" if picture else f"observation.{safe_key(name)}"


def is_picture(shape: tuple[int, ...], dtype: str) -> bool:
    """Whether rows (T, ...) are 8-bit pictures (height, width, channels)."""
    if len(shape) != 4 or dtype != "uint8":
        return False
    return shape[-1] in {1, 3} or (shape[-1] == 4 and shape[1] not in {1, 3})


def feature(name: str, row: NDArray[Any], env_args: Mapping[str, Any]) -> Feature:
    """What an observation is. robosuite's quaternions are x, y, z, w and its positions metres."""
    shape, dtype = tuple(row.shape), str(row.dtype)
    if is_picture((1, *shape), dtype):
        return Feature(shape, dtype, names=("height", "width", "channel"), layout="hwc")
    if len(shape) == 3 and dtype == "uint8" and shape[0] in {1, 3}:
        return Feature(shape, dtype, names=("channel", "height", "width"), layout="chw")
    if env_args.get("type") != ROBOSUITE or len(shape) != 1:
        return Feature(shape, dtype)
    return _robosuite_feature(name, shape, dtype)


def _robosuite_feature(name: str, shape: tuple[int, ...], dtype: str) -> Feature:
    if _QUATERNION.search(name) and shape == (4,):
        return Feature(
            shape, dtype, names=("qx", "qy", "qz", "qw"), rotations=((0, "quaternion_xyzw"),), mode="absolute"
        )
    if name.endswith("eef_pos") and shape == (3,):
        return Feature(shape, dtype, unit="m", names=("x", "y", "z"), mode="absolute")
    if name.endswith("joint_pos"):
        return Feature(shape, dtype, unit="rad", mode="absolute")
    return Feature(shape, dtype)


def control_rate(env_args: Mapping[str, Any]) -> float | None:
    """Control rate that the environment was made with, Hz; None where it is not said."""
    rate = _kwargs(env_args).get("control_freq")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def task_text(env_args: Mapping[str, Any]) -> str:
    """The task in words, or else the environment's name."""
    text = _kwargs(env_args).get("env_lang") or env_args.get("lang") or env_args.get("env_name") or ""
    return text if isinstance(text, str) else ""


def robot_name(env_args: Mapping[str, Any]) -> str:
    """Names of the robots, joined by ``+``."""
    robots = _kwargs(env_args).get("robots") or ()
    names: Iterable[Any] = [robots] if isinstance(robots, str) else robots
    return "+".join(str(name) for name in names)


def sparse_reward(env_args: Mapping[str, Any]) -> bool:
    """Whether a positive reward means success: robosuite without reward shaping."""
    return env_args.get("type") == ROBOSUITE and not _kwargs(env_args).get("reward_shaping", False)


def action_spec(env_args: Mapping[str, Any], width: int) -> dict[str, Any] | None:
    """What the actions of one robosuite arm under operational space control mean.

    They are the controller's normalised input, -1 to 1, hence without unit; the file's ``env_args`` say what
    1 is in metres and radians.

    Args:
        env_args: Of the file.
        width: Dimensions A of an action.

    Returns:
        As `ActionSpec.to_json` gives it; None for other controllers and more arms, which stay undescribed.
    """
    rate = control_rate(env_args)
    part = _arm_controller(_kwargs(env_args).get("controller_configs"))
    kind = part.get("type")
    size = _ARM_WIDTH.get(str(kind))
    if env_args.get("type") != ROBOSUITE or rate is None or size is None or width != size + 1:
        return None
    delta = part.get("input_type", "delta" if part.get("control_delta", True) else "absolute") == "delta"
    arm = {
        "name": "arm",
        "size": size,
        "mode": "delta" if delta else "absolute",
        "kind": "pose" if size == 6 else "position",
        "frame": str(part.get("input_ref_frame", "world")),
        "rotation": "rotvec" if size == 6 else "none",
    }
    gripper = {"name": "gripper", "size": 1, "mode": "absolute", "kind": "gripper"}
    gripper |= {"frame": "", "rotation": "none"}
    names = {"arm": ["x", "y", "z", "rx", "ry", "rz"][:size], "gripper": ["closing"]}
    groups = [
        {
            **group,
            "unit": "",
            "low": [-1.0] * count,
            "high": [1.0] * count,
            "names": names[str(group["name"])],
        }
        for group, count in ((arm, size), (gripper, 1))
    ]
    return {"groups": groups, "rate_hz": rate}


def _kwargs(env_args: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = env_args.get("env_kwargs")
    return kwargs if isinstance(kwargs, dict) else {}


def _arm_controller(config: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON of another program
    """Configuration of the only arm; robosuite 1.5 nests it below ``body_parts``, older ones do not."""
    if isinstance(config, list) and len(config) == 1:
        config = config[0]
    if not isinstance(config, dict):
        return {}
    parts = config.get("body_parts")
    if not isinstance(parts, dict):
        return config
    if isinstance(parts.get("arms"), dict):
        parts = parts["arms"]
    arms = [part for part in parts.values() if isinstance(part, dict) and "type" in part]
    return arms[0] if len(arms) == 1 else {}
