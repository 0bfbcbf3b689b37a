import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from data.errors import DatasetError
from data.formats.registry import detect, open_source
from data.records import equal
from data.steps_view import at_steps
from data.store import EpisodeStore
from tests.data.formats import bags
from tests.data.formats.bags import MAPPING, STAMP_LAG, Messages
from tests.data.formats.real import REAL, needs


@pytest.fixture(scope="module")
def make():
    return Messages()


@pytest.fixture(scope="module")
def bag(make, tmp_path_factory):
    return bags.write(tmp_path_factory.mktemp("bag") / "insert", bags.robot_topics(make))


def mapping(**changes):
    return MAPPING | changes


def read(path, **options):
    source = open_source(path, **({"mapping": MAPPING} | options))
    return source, next(source.episodes)


def check_robot(episode):
    """Commands came at 0.25 s + 0.1 s k; the state of joint message i at 0.1 s + 0.04 s i."""
    assert len(episode) == 5
    assert episode.action.tolist() == [[k + 0.1, -k - 0.2] for k in range(5)]
    origin = 0.0  # the first force
    np.testing.assert_allclose(episode.monotonic_time, [origin + 0.25 + 0.1 * k for k in range(5)], atol=1e-9)
    newest = [3, 6, 8, 11, 13, 16]
    assert episode.observations["observation.state"].tolist() == [[-i - 0.25, i + 0.5] for i in newest]
    assert episode.observations["observation.velocity"].tolist() == [[10 * i + 1] for i in newest]
    forces = episode.observations["observation.wrench"]
    assert forces[:, 0].tolist() == [25, 35, 45, 55, 65, 75]
    assert forces[2].tolist() == [45, 45.1, 45.2, -45, -45.1, -45.2]


def test_every_command_is_a_step_that_saw_the_newest_messages(bag):
    assert detect(bag) == "rosbag"
    source, episode = read(bag)
    check_robot(episode)
    assert (episode.task, episode.robot, episode.id) == ("insert the peg", "two joints", "insert")
    assert episode.metadata["last_command"] == [5.1, -5.2]
    assert episode.metadata["times"] == "measured"
    assert source.features["observation.state"].names == ("shoulder", "elbow")
    assert source.features["observation.state"].unit == "rad"
    assert source.features["observation.wrench"].names == ("fx", "fy", "fz", "tx", "ty", "tz")
    assert any("last command is left out" in note for note in source.notes)


def test_every_topic_is_a_stream_at_its_own_rate(bag):
    _, episode = read(bag)
    assert {key: len(stream) for key, stream in episode.streams.items()} == {
        "observation.state": 20,
        "observation.velocity": 20,
        "observation.wrench": 90,
    }
    wrench = episode.streams["observation.wrench"]
    np.testing.assert_allclose(wrench.times, np.arange(90) / 100, atol=1e-9)
    assert wrench.wall_times[0] == pytest.approx(1.7e9 + STAMP_LAG / 1e9, abs=1e-6)
    seen = at_steps(episode, ["observation.wrench"])["observation.wrench"]
    np.testing.assert_array_equal(seen, episode.observations["observation.wrench"][:-1])


@pytest.mark.parametrize(
    ("storage", "compression"), [("SQLITE3", None), ("SQLITE3", "MESSAGE"), ("MCAP", "STORAGE")]
)
def test_every_storage_gives_the_same(make, tmp_path, storage, compression):
    path = bags.write(tmp_path / "insert", bags.robot_topics(make), storage, compression)
    check_robot(read(path)[1])


def test_a_file_of_a_bag_is_read_alone(bag):
    (file,) = bag.glob("*.mcap")
    assert detect(file) == "rosbag"
    check_robot(read(file)[1])


def test_the_declared_clock_counts_for_every_topic(make, tmp_path):
    topics = bags.robot_topics(make)
    commands = [
        (t, make.joints(t - STAMP_LAG, ("a",), [k + 0.5])) for k, (t, _) in enumerate(topics["/commands"][1])
    ]
    late = [(t + 60_000_000, message) for t, message in topics["/wrench"][1]]
    path = bags.write(
        tmp_path / "b", topics | {"/commands": (bags.JOINTS, commands), "/wrench": (bags.WRENCH, late)}
    )
    control = {"topic": "/commands"}
    by_header = read(path, mapping=mapping(clock="header", control=control))[1]
    by_receipt = read(path, mapping=mapping(clock="receive", control=control))[1]
    assert by_header.observations["observation.wrench"][:, 0].tolist() == [25, 35, 45, 55, 65, 75]
    assert by_receipt.observations["observation.wrench"][:, 0].tolist() == [19, 29, 39, 49, 59, 69]
    assert by_header.metadata["received_after_stamp_s"]["observation.wrench"] == pytest.approx(0.067)
    assert by_header.wall_time[0] == pytest.approx(1.7e9 + 0.25, abs=1e-6)


def test_a_stampless_topic_cannot_go_by_the_header_clock(bag):
    with pytest.raises(
        DatasetError, match="action: std_msgs/msg/Float64MultiArray has no time stamp; use clock"
    ):
        read(bag, mapping=mapping(clock="header"))


def test_a_stamp_that_nobody_set_is_refused(make, tmp_path):
    unset = [(t, make.joints(-bags.START, ("a",), [1.0])) for t in (1, 2, 3)]
    path = bags.write(tmp_path / "b", {"/j": (bags.JOINTS, unset)})
    given = {
        "clock": "header",
        "control": {"topic": "/j"},
        "observations": {"observation.state": {"topic": "/j"}},
    }
    with pytest.raises(DatasetError, match="no time stamp in their header; use clock = 'receive'"):
        read(path, mapping=given)


def test_joints_are_matched_by_name_and_never_made_up(make, tmp_path):
    orders = [("a", "b"), ("b", "a"), ("gripper",), ("b", "a")]
    values = [[1, 2], [20, 10], [99], [200, 100]]
    messages = [(i, make.joints(i, n, v)) for i, (n, v) in enumerate(zip(orders, values, strict=True))]
    path = bags.write(tmp_path / "b", {"/j": (bags.JOINTS, messages)})
    given = {
        "clock": "receive",
        "control": {"topic": "/j"},
        "observations": {"observation.state": {"topic": "/j"}},
    }
    source, episode = read(path, mapping=given)
    assert episode.observations["observation.state"].tolist() == [[1, 2], [10, 20], [100, 200]]
    assert "action: 1 messages had nothing of what is wanted." in source.notes
    partial = bags.write(tmp_path / "c", {"/j": (bags.JOINTS, [*messages, (9, make.joints(9, ("a",), [5]))])})
    with pytest.raises(DatasetError, match=r"1 values for joints \['a'\]; wanted are \['a', 'b'\]"):
        read(partial, mapping=given)
    given["observations"]["observation.state"]["field"] = "velocity"
    with pytest.raises(DatasetError, match="0 values for joints"):
        read(path, mapping=given)


def test_the_other_messages_are_read_in_their_order(make, tmp_path):
    quaternion = (0.1, 0.2, 0.3, 0.9)
    topics = {
        "/goal": (
            "trajectory_msgs/msg/JointTrajectory",
            [(i, make.trajectory(i, ("b", "a"), [[i + 0.1, i + 0.2], [7, 8]])) for i in (5, 6, 7)],
        ),
        "/pose": ("geometry_msgs/msg/PoseStamped", [(1, make.pose(1, (1.0, 2.0, 3.0), quaternion))]),
        "/joy": ("sensor_msgs/msg/Joy", [(2, make.joy(2, [0.25, -0.5, 1.0], [0, 1]))]),
    }
    path = bags.write(tmp_path / "b", topics)
    given = {
        "clock": "header",
        "control": {"topic": "/goal", "names": ["a", "b"]},
        "observations": {
            "observation.pose": {"topic": "/pose", "mode": "absolute", "unit": "m"},
            "observation.axes": {"topic": "/joy"},
            "observation.buttons": {"topic": "/joy", "field": "buttons"},
        },
    }
    source, episode = read(path, mapping=given)
    np.testing.assert_allclose(episode.action, [[5.2, 5.1], [6.2, 6.1]])
    assert episode.observations["observation.pose"][2].tolist() == [1, 2, 3, 0.1, 0.2, 0.3, 0.9]
    assert source.features["observation.pose"].rotations == ((3, "quaternion_xyzw"),)
    assert source.features["observation.pose"].mode == "absolute"
    assert episode.observations["observation.axes"][0].tolist() == [0.25, -0.5, 1.0]
    assert episode.observations["observation.buttons"][0].tolist() == [0, 1]


def picture_bag(make, path, message, kind="sensor_msgs/msg/Image"):
    topics = {
        "/j": (bags.JOINTS, [(i, make.joints(i, ("a",), [i])) for i in (1, 2, 3)]),
        "/image": (kind, [(0, message)]),
    }
    return bags.write(path, topics)


PICTURE = {
    "clock": "header",
    "control": {"topic": "/j"},
    "observations": {"observation.images.eye": {"topic": "/image"}},
}


@pytest.mark.parametrize(
    ("encoding", "pixels", "wanted"),
    [
        ("rgb8", [[[1, 2, 3], [4, 5, 6]]], [[[1, 2, 3], [4, 5, 6]]]),
        ("bgr8", [[[1, 2, 3], [4, 5, 6]]], [[[3, 2, 1], [6, 5, 4]]]),
        ("bgra8", [[[1, 2, 3, 9], [4, 5, 6, 9]]], [[[3, 2, 1], [6, 5, 4]]]),
        ("mono8", [[[7], [8]]], [[[7], [8]]]),
    ],
)
def test_images_of_every_encoding_become_rgb(make, tmp_path, encoding, pixels, wanted):
    rows = np.array(pixels * 2, np.uint8)
    rows[1] += 10
    padded = np.pad(rows.reshape(2, -1), ((0, 0), (0, 5)), constant_values=77)
    message = make.image(0, encoding, padded.tobytes(), 2, 2, padded.shape[1])
    source, episode = read(picture_bag(make, tmp_path / "b", message), mapping=PICTURE)
    found = episode.observations["observation.images.eye"]
    assert found[0].tolist() == [wanted[0], (np.array(wanted[0]) + 10).tolist()]
    assert source.features["observation.images.eye"].layout == "hwc"


@pytest.mark.parametrize(("bigendian", "order"), [(0, "<u2"), (1, ">u2")])
def test_depth_is_millimetres_in_either_byte_order(make, tmp_path, bigendian, order):
    depth = np.array([[1, 256, 770], [4000, 5, 65535]], order)
    message = make.image(0, "16UC1", depth.tobytes(), 2, 3, 6, bigendian)
    source, episode = read(picture_bag(make, tmp_path / "b", message), mapping=PICTURE)
    assert episode.observations["observation.images.eye"][1, ..., 0].tolist() == depth.tolist()
    assert source.features["observation.images.eye"].unit == "mm"


def test_compressed_images_are_decoded(make, tmp_path):
    cv2 = pytest.importorskip("cv2")
    rgb = np.array([[[250, 20, 10], [30, 240, 50]]], np.uint8)
    deep = np.array([[1, 60_000]], np.uint16)
    for name, array in (("rgb", rgb[..., ::-1]), ("deep", deep)):
        content = cv2.imencode(".png", array)[1].tobytes()
        kind = "sensor_msgs/msg/CompressedImage"
        path = picture_bag(make, tmp_path / name, make.compressed(0, "png", content), kind)
        found = read(path, mapping=PICTURE)[1].observations["observation.images.eye"][0]
        assert found.tolist() == (rgb if name == "rgb" else deep[..., None]).tolist()


@pytest.mark.parametrize(
    ("encoding", "size", "step", "message"),
    [
        ("yuv422", 12, 6, "encoding 'yuv422'; read are rgb8"),
        ("rgb8", 11, 6, "11 bytes in all; 6 and 12 are needed"),
        ("rgb8", 12, 5, "rows of 5 bytes"),
    ],
)
def test_images_that_do_not_fit_are_refused(make, tmp_path, encoding, size, step, message):
    path = picture_bag(make, tmp_path / "b", make.image(0, encoding, bytes(size), 2, 2, step))
    with pytest.raises(DatasetError, match=message):
        read(path, mapping=PICTURE)


def test_pictures_that_claim_to_be_huge_are_not_decoded(make, tmp_path):
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBB", 60_000, 60_000, 8, 2) + b"IEND\xaeB`\x82"
    kind = "sensor_msgs/msg/CompressedImage"
    path = picture_bag(make, tmp_path / "b", make.compressed(0, "png", header), kind)
    with pytest.raises(DatasetError, match="60000 x 60000 pixels, unfolds to 10800000000 bytes"):
        read(path, mapping=PICTURE)


def test_pictures_may_be_kept_for_the_steps_only(make, tmp_path):
    images = [(i, make.image(i, "mono8", bytes([i]), 1, 1, 1)) for i in range(40)]
    joints = [(t, make.joints(t, ("a",), [t])) for t in (10, 20, 30)]
    topics = {"/j": (bags.JOINTS, joints), "/image": ("sensor_msgs/msg/Image", images)}
    path = bags.write(tmp_path / "b", topics, "SQLITE3")
    few = PICTURE | {"observations": {"observation.images.eye": {"topic": "/image", "keep": "steps"}}}
    _, episode = read(path, mapping=few, max_decoded_bytes=60)
    assert episode.observations["observation.images.eye"].ravel().tolist() == [10, 20, 30]
    assert episode.streams == {}
    with pytest.raises(DatasetError, match="passes the limit of 60 bytes"):
        read(path, mapping=PICTURE, max_decoded_bytes=60)


def test_commands_before_the_first_message_of_a_sensor_are_left_out_and_counted(make, tmp_path):
    topics = bags.robot_topics(make)
    topics["/wrench"] = (bags.WRENCH, topics["/wrench"][1][40:])
    source, episode = read(bags.write(tmp_path / "b", topics))
    assert episode.action[:, 0].tolist() == [2.1, 3.1, 4.1]
    assert episode.metadata["commands_left_out"] == {"before": 2, "after": 1}
    assert any(note.startswith("2 commands came before") for note in source.notes)
    topics["/wrench"] = (bags.WRENCH, topics["/wrench"][1][40:])
    with pytest.raises(DatasetError, match="fewer than two of the 6 commands"):
        read(bags.write(tmp_path / "c", topics))


def test_a_sensor_that_stopped_is_noticed_when_asked_for(make, tmp_path):
    topics = bags.robot_topics(make)
    topics["/joint_states"] = (bags.JOINTS, topics["/joint_states"][1][:9])
    path = bags.write(tmp_path / "b", topics)
    assert read(path)[1].metadata["largest_age_s"]["observation.state"] == pytest.approx(0.33)
    strict = MAPPING["observations"]["observation.state"] | {"max_age_s": 0.2}
    observations = MAPPING["observations"] | {"observation.state": strict}
    with pytest.raises(DatasetError, match=r"observation.state was 0\.230 s old at step 4"):
        read(path, mapping=mapping(observations=observations))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"control": {"topic": "/comands"}},
            r"no topic '/comands'; did you mean '/commands'\? It has:\n  /commands  std",
        ),
        ({"clok": "header"}, "did you mean 'clock'"),
        ({"clock": "head"}, "did you mean 'header'"),
        ({"observations": {}}, "at least one entry"),
        ({"observations": {"../evil": {"topic": "/wrench"}}}, "'../evil' cannot name a stored array"),
        ({"observations": {"observation.w": {"topic": "/wrench", "field": "effort"}}}, "has no 'effort'"),
    ],
)
def test_a_mapping_that_is_nearly_right_gets_a_hint(bag, changes, message):
    with pytest.raises(ValueError, match=message):
        read(bag, mapping=mapping(**changes))


def test_a_mapping_is_read_from_a_file_and_its_absence_lists_the_topics(bag, tmp_path):
    file = tmp_path / "mapping.toml"
    control = '[control]\ntopic = "/commands"\n'
    wrench = '[observations."observation.wrench"]\ntopic = "/wrench"\n'
    file.write_text(f'clock = "receive"\n{control}{wrench}')
    assert len(read(bag, mapping=str(file))[1]) == 5
    file.write_text("clock = ")
    with pytest.raises(DatasetError, match=r"mapping\.toml is no TOML"):
        read(bag, mapping=file)
    with pytest.raises(
        DatasetError,
        match=r"--read mapping PATH\). The bag has:\n  /commands  std_msgs/msg/Float64MultiArray",
    ):
        read(bag, mapping=None)


def test_what_is_read_can_be_stored(bag, tmp_path):
    _, episode = read(bag)
    EpisodeStore(tmp_path / "store").write(episode)
    assert equal(EpisodeStore(tmp_path / "store").read("insert"), episode)


def split(make, path):
    """A bag in two files whose messages alternate in time."""
    topics = bags.robot_topics(make)
    halves = [{t: (k, m[i::2]) for t, (k, m) in topics.items()} for i in (0, 1)]
    path.mkdir()
    for number, half in enumerate(halves):
        part = bags.write(path / f"tmp{number}", half)
        (file,) = part.glob("*.mcap")
        file.rename(path / f"insert_{1 - number}.mcap")
        shutil.rmtree(part)
    return path


def test_files_without_metadata_are_joined_in_time_order_when_told_so(make, tmp_path):
    path = split(make, tmp_path / "insert")
    assert detect(path) == "rosbag"
    with pytest.raises(
        DatasetError, match=r"no metadata.yaml.*Its 2 files can be read all the same: give reindex=True"
    ):
        read(path)
    before = sorted(entry.name for entry in path.iterdir())
    check_robot(read(path, reindex=True)[1])
    assert sorted(entry.name for entry in path.iterdir()) == before


def test_files_cut_short_are_refused(bag, tmp_path):
    (file,) = bag.glob("*.mcap")
    content = file.read_bytes()
    for length in (len(content) - 1, len(content) // 2, 30):
        (tmp_path / "cut.mcap").write_bytes(content[:length])
        with pytest.raises(DatasetError, match=r"cut.mcap is cut short: no whole record at byte \d+ of"):
            read(tmp_path / "cut.mcap")


def test_a_flipped_byte_in_a_database_or_file_is_an_error_of_ours(make, bag, tmp_path):
    (file,) = bag.glob("*.mcap")
    other = bags.write(tmp_path / "sql", bags.robot_topics(make), "SQLITE3")
    (database,) = other.glob("*.db3")
    rng = np.random.default_rng(0)
    refused = 0
    for source in (file, database):
        content = source.read_bytes()
        for place in rng.integers(0, len(content), 30):
            broken = bytearray(content)
            broken[place] ^= 0xFF
            target = tmp_path / f"broken{source.suffix}"
            target.write_bytes(broken)
            try:
                read(target)
            except (DatasetError, ValueError):
                refused += 1
    assert refused > 0


def test_metadata_may_not_lead_out_of_the_folder(bag, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(bag, path)
    (file,) = path.glob("*.mcap")
    file.rename(tmp_path / "outside.mcap")
    text = (path / "metadata.yaml").read_text()
    (path / "metadata.yaml").write_text(text.replace(file.name, "../outside.mcap"))
    with pytest.raises(DatasetError, match=r"lacks '\.\./outside\.mcap'"):
        read(path)
    (path / file.name).symlink_to(tmp_path / "outside.mcap")
    (path / "metadata.yaml").write_text(text)
    with pytest.raises(DatasetError, match=f"lacks '{file.name}'"):
        read(path)


def test_a_chunk_that_unfolds_to_more_than_it_says_is_stopped(tmp_path):
    zstd = pytest.importorskip("backports.zstd")
    lz4 = pytest.importorskip("lz4.frame")
    for name, packed in (("zstd", zstd.compress(bytes(3_000_000))), ("lz4", lz4.compress(bytes(3_000_000)))):
        body = struct.pack("<QQQI", 0, 0, 1000, 0) + struct.pack("<I", len(name)) + name.encode()
        body += struct.pack("<Q", len(packed)) + packed
        magic = b"\x89MCAP0\r\n"
        file = tmp_path / f"{name}.mcap"
        footer = b"\x02" + struct.pack("<Q", 20) + bytes(20)
        file.write_bytes(magic + b"\x06" + struct.pack("<Q", len(body)) + body + footer + magic)
        with pytest.raises(DatasetError, match="chunk at byte 8 unfolds to more than 1000 bytes"):
            read(file)
        with pytest.raises(DatasetError, match="unfolds to 1000 bytes, which passes the limit of 999"):
            read(file, max_decoded_bytes=999)


def test_a_database_that_was_not_closed_is_refused(make, tmp_path):
    path = bags.write(tmp_path / "b", bags.robot_topics(make), "SQLITE3")
    (database,) = path.glob("*.db3")
    Path(f"{database}-wal").write_bytes(b"waiting")
    with pytest.raises(DatasetError, match=r"was not closed: .*-wal holds messages"):
        read(path)


def test_other_types_are_refused_by_name(make, tmp_path):
    text = make.types["std_msgs/msg/String"]("hello")
    path = bags.write(
        tmp_path / "b", bags.robot_topics(make) | {"/text": ("std_msgs/msg/String", [(1, text)])}
    )
    observations = MAPPING["observations"] | {"observation.text": {"topic": "/text"}}
    with pytest.raises(DatasetError, match="topic /text holds std_msgs/msg/String; read are geometry_msgs"):
        read(path, mapping=mapping(observations=observations))


@needs("ros2_mcap")
def test_a_real_bag_of_many_types():
    given = {
        "clock": "header",
        "control": {"topic": "/joint_state"},
        "observations": {
            "observation.state": {"topic": "/joint_state"},
            "observation.images.raw": {"topic": "/image"},
            "observation.images.packed": {"topic": "/compressed_image"},
            "observation.axes": {"topic": "/joy"},
        },
    }
    source, episode = read(REAL / "ros2_mcap/sensor_zoo.mcap", mapping=given)
    assert len(episode) == 14
    assert source.features["observation.state"].names[0] == "shoulder_joint"
    assert source.features["observation.images.raw"].shape == (480, 640, 3)
    assert source.features["observation.images.packed"].shape == (480, 640, 3)
    np.testing.assert_array_equal(episode.observations["observation.state"][:-1], episode.action)
    assert 0.09 < np.median(np.diff(episode.monotonic_time)) < 0.12


@needs("ros2_mcap")
def test_a_real_split_bag_is_joined_in_time_order():
    from data.formats.rosbag_files import Bag

    with Bag(REAL / "ros2_mcap/split_bag", reindex=False, limit=1 << 20) as bag:
        times = [message.received_ns for message in bag.messages(bag.topics)]
    assert len(times) == 6074
    assert times == sorted(times)
    assert (times[0], times[-1]) == (1000, 2998)  # its metadata.yaml says from 2623 to 3034


@needs("ros2_mcap")
def test_a_real_bag_without_metadata_says_so():
    from data.formats.rosbag_files import Bag

    path = REAL / "ros2_mcap/no_metadata"
    with pytest.raises(DatasetError, match="give reindex=True"):
        open_source(path)
    with Bag(path, reindex=True, limit=1 << 20) as bag:
        times = [message.received_ns for message in bag.messages(bag.topics)]
    assert times == sorted(times)
    assert len(times) == sum(bag.counts.values()) > 2600
