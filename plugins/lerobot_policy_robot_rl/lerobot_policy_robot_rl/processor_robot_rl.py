"""Processors that leave the numbers as they are: the policy reads and returns the robot's own units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lerobot.processor import (
    AddBatchDimensionProcessorStep,
    DeviceProcessorStep,
    PolicyProcessorPipeline,
    RenameObservationsProcessorStep,
)
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from lerobot.utils.constants import POLICY_POSTPROCESSOR_DEFAULT_NAME, POLICY_PREPROCESSOR_DEFAULT_NAME

if TYPE_CHECKING:
    from lerobot_policy_robot_rl.configuration_robot_rl import RobotRlConfig


def make_robot_rl_pre_post_processors(
    config: RobotRlConfig,
    dataset_stats: Any = None,  # noqa: ANN401 - LeRobot's call
) -> tuple[Any, Any]:
    """Return the pre- and post-processor.

    Both normalise nothing: the base's own statistics are used inside the policy, once. LeRobot's programs
    override the first and third step of the first by name.

    Args:
        config: says the device.
        dataset_stats: ignored, for the same reason.
    """
    del dataset_stats
    before = PolicyProcessorPipeline(
        steps=[
            RenameObservationsProcessorStep(rename_map={}),
            AddBatchDimensionProcessorStep(),
            DeviceProcessorStep(device=config.device),
        ],
        name=POLICY_PREPROCESSOR_DEFAULT_NAME,
    )
    after = PolicyProcessorPipeline(
        steps=[DeviceProcessorStep(device="cpu")],
        name=POLICY_POSTPROCESSOR_DEFAULT_NAME,
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    return before, after
