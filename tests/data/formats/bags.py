"""Bags for tests, written with the rosbags package; every number differs from every other."""

import numpy as np
import pytest

NS = 1_000_000_000
START = 1_700_000_000 * NS
STAMP_LAG = 7_000_000
"""By how much a message is received after it was stamped, ns."""


def store():
    typesys = pytest.importorskip("rosbags.typesys")
    return typesys.get_typestore(typesys.Stores.ROS2_KILTED)


class Messages:
    """Makes standard messages; times in ns after `START`."""

    def __init__(self):
        self.store = store()
        self.types = self.store.types

    def header(self, stamp):
        total = START + stamp
        time = self.types["builtin_interfaces/msg/Time"](sec=total // NS, nanosec=total % NS)
        return self.types["std_msgs/msg/Header"](stamp=time, frame_id="base")

    def joints(self, stamp, names, position, velocity=(), effort=()):
        arrays = [np.array(values, np.float64) for values in (position, velocity, effort)]
        make = self.types["sensor_msgs/msg/JointState"]
        return make(self.header(stamp), list(names), *arrays)

    def numbers(self, values):
        layout = self.types["std_msgs/msg/MultiArrayLayout"](dim=[], data_offset=0)
        return self.types["std_msgs/msg/Float64MultiArray"](layout, np.array(values, np.float64))

    def trajectory(self, stamp, names, points):
        duration = self.types["builtin_interfaces/msg/Duration"](sec=0, nanosec=0)
        none = np.zeros(0)
        make = self.types["trajectory_msgs/msg/JointTrajectoryPoint"]
        rows = [make(np.array(point, np.float64), none, none, none, duration) for point in points]
        return self.types["trajectory_msgs/msg/JointTrajectory"](self.header(stamp), list(names), rows)

    def wrench(self, stamp, values):
        vector = self.types["geometry_msgs/msg/Vector3"]
        wrench = self.types["geometry_msgs/msg/Wrench"](vector(*values[:3]), vector(*values[3:]))
        return self.types["geometry_msgs/msg/WrenchStamped"](self.header(stamp), wrench)

    def pose(self, stamp, position, xyzw):
        point = self.types["geometry_msgs/msg/Point"](*position)
        turn = self.types["geometry_msgs/msg/Quaternion"](*xyzw)
        pose = self.types["geometry_msgs/msg/Pose"](point, turn)
        return self.types["geometry_msgs/msg/PoseStamped"](self.header(stamp), pose)

    def joy(self, stamp, axes, buttons):
        arrays = np.array(axes, np.float32), np.array(buttons, np.int32)
        return self.types["sensor_msgs/msg/Joy"](self.header(stamp), *arrays)

    def image(self, stamp, encoding, data, height, width, step, bigendian=0):
        flat = np.frombuffer(data, np.uint8)
        return self.types["sensor_msgs/msg/Image"](
            self.header(stamp), height, width, encoding, bigendian, step, flat
        )

    def compressed(self, stamp, kind, content):
        make = self.types["sensor_msgs/msg/CompressedImage"]
        return make(self.header(stamp), kind, np.frombuffer(content, np.uint8))


def write(path, topics, storage="MCAP", compression=None):
    """Write a bag of {topic: (type, [(received after START in ns, message), ...])}; returns its path."""
    from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

    types = store()
    writer = Writer(path, version=9, storage_plugin=StoragePlugin[storage])
    if compression is not None:
        writer.set_compression(CompressionMode[compression], CompressionFormat.ZSTD)
    rows = []
    with writer:
        for topic, (kind, messages) in topics.items():
            connection = writer.add_connection(topic, kind, typestore=types)
            rows += [(received, connection, kind, message) for received, message in messages]
        for received, connection, kind, message in sorted(rows, key=lambda row: row[0]):
            writer.write(connection, START + received, types.serialize_cdr(message, kind))
    return path


JOINTS = "sensor_msgs/msg/JointState"
NUMBERS = "std_msgs/msg/Float64MultiArray"
WRENCH = "geometry_msgs/msg/WrenchStamped"


def robot_topics(make, steps=6):
    """Commands at 10 Hz from 0.25 s on, joints at 25 Hz from 0.1 s on, forces at 100 Hz from 0 s on."""
    ms = 1_000_000
    commands = [
        (250 * ms + 100 * ms * k + STAMP_LAG, make.numbers([k + 0.1, -k - 0.2])) for k in range(steps)
    ]
    joints = [
        (
            t + STAMP_LAG,
            make.joints(t, ("elbow", "shoulder"), [i + 0.5, -i - 0.25], [10 * i + 1, -10 * i - 2]),
        )
        for i in range(20)
        for t in [100 * ms + 40 * ms * i]
    ]
    forces = [
        (10 * ms * i + STAMP_LAG, make.wrench(10 * ms * i, [i, i + 0.1, i + 0.2, -i, -i - 0.1, -i - 0.2]))
        for i in range(90)
    ]
    return {"/commands": (NUMBERS, commands), "/joint_states": (JOINTS, joints), "/wrench": (WRENCH, forces)}


MAPPING = {
    "clock": "receive",
    "task": "insert the peg",
    "robot": "two joints",
    "control": {"topic": "/commands", "names": ["shoulder", "elbow"], "unit": "rad", "mode": "absolute"},
    "observations": {
        "observation.state": {"topic": "/joint_states", "names": ["shoulder", "elbow"]},
        "observation.velocity": {"topic": "/joint_states", "names": ["elbow"], "field": "velocity"},
        "observation.wrench": {"topic": "/wrench"},
    },
}
