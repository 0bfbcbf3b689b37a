import numpy as np
import pytest

from data.steps import SegmentKind
from hardware.intervention import Command, CommandKind, InterventionDevice, ScriptedIntervention


def script():
    return ScriptedIntervention(
        [
            Command(CommandKind.DRIVE, [1.0, 2.0], 1.0, SegmentKind.RECOVERY),
            Command(CommandKind.NONE, stamp=2.0),
            Command(CommandKind.SUCCESS, stamp=3.0),
        ]
    )


def test_a_script_plays_by_the_clock():
    device = script()
    assert isinstance(device, InterventionDevice)
    assert device.poll(0.99).kind is CommandKind.NONE
    driving = device.poll(1.5)
    assert (driving.kind, driving.stamp, driving.segment) == (CommandKind.DRIVE, 1.5, SegmentKind.RECOVERY)
    np.testing.assert_array_equal(driving.action, [1.0, 2.0])
    assert device.poll(2.0).kind is CommandKind.NONE


def test_what_happens_once_is_told_once_even_when_polled_late():
    device = script()
    assert device.poll(10.0).kind is CommandKind.SUCCESS
    assert device.poll(10.1).kind is CommandKind.NONE


def test_commands_carry_an_action_exactly_when_driving():
    with pytest.raises(ValueError, match="'drive' needs an action"):
        Command(CommandKind.DRIVE)
    with pytest.raises(ValueError, match="'pause' has no action"):
        Command(CommandKind.PAUSE, [0.0])
    with pytest.raises(ValueError, match="must grow"):
        ScriptedIntervention([Command(CommandKind.NONE, stamp=1.0), Command(CommandKind.STOP, stamp=1.0)])


def test_a_command_keeps_its_own_copy_of_the_action():
    action = np.zeros(2)
    command = Command(CommandKind.DRIVE, action)
    action[0] = 5.0
    assert command.action[0] == 0.0
