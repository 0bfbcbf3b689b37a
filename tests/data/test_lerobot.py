import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import DatasetError
from data.lerobot import LeRobotFolder
from data.windows import ChunkWindows
from tests.data.lerobot_folder import CAMERA, FPS, grey, write_dataset, write_dataset_v2

ROOT = Path(__file__).parents[2]
REAL = Path(os.environ.get("ROBOT_RL_REAL_DATA", ROOT.parent / "shared/real"))
needs_recordings = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real recordings at {REAL}")
needs_lerobot = pytest.mark.skipif(
    importlib.util.find_spec("lerobot") is None, reason="lerobot is not installed"
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("lerobot") / "set")


@pytest.fixture
def broken(tmp_path):
    return write_dataset(tmp_path / "set")


def edit_info(root, **changes):
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | changes))


def test_episodes_are_read_by_their_number(dataset):
    folder = LeRobotFolder(dataset)
    assert (folder.ids, len(folder), folder.fps, folder.robot) == ([0, 1, 2], 3, 10.0, "test_arm")
    found = folder.read(1)
    assert (len(found), found.task) == (7, "place")
    np.testing.assert_array_equal(found.columns["observation.state"][:, 0], np.arange(5, 12))
    np.testing.assert_array_equal(found.columns["action"], found.columns["observation.state"] + 0.5)
    np.testing.assert_allclose(found.timestamps, np.arange(7) / FPS, atol=1e-6)
    assert folder.features["action"].names == ("a.pos", "b.pos")
    assert folder.features[CAMERA].shape == (24, 32, 3)
    with pytest.raises(KeyError, match="No episode 3"):
        folder.read(3)


def test_each_step_gets_its_own_frame_though_episodes_share_a_video(dataset):
    folder = LeRobotFolder(dataset)
    first = 0
    for found in folder:
        pictures = found.frames(CAMERA)
        assert pictures.shape == (len(found), 24, 32, 3)
        assert pictures.dtype == np.uint8
        levels = pictures[:, 20, 28].astype(int).mean(axis=-1)
        np.testing.assert_allclose(levels, [grey(first + t) for t in range(len(found))], atol=3)
        np.testing.assert_allclose(pictures[:, 4, 4], np.tile([250, 10, 10], (len(found), 1)), atol=6)
        first += len(found)


def test_frames_come_in_any_order_and_size(dataset):
    found = LeRobotFolder(dataset).read(2)
    every = found.frames(CAMERA)
    np.testing.assert_array_equal(found.frames(CAMERA, [3, 0, 3]), every[[3, 0, 3]])
    assert found.frames(CAMERA, [1], size=(12, 16)).shape == (1, 12, 16, 3)
    assert len(found.frames(CAMERA, [])) == 0
    with pytest.raises(IndexError, match="which has 4"):
        found.frames(CAMERA, [4])
    with pytest.raises(KeyError, match=r"No camera.*observation.images.top"):
        found.frames("observation.images.wrist")


def test_episodes_become_windows_for_cloning(dataset):
    folder = LeRobotFolder(dataset)
    windows = ChunkWindows([found.trajectory() for found in folder], observation_steps=1, horizon=3)
    batch = windows.batch([5])
    assert batch.observations[CAMERA].shape == (1, 1, 24, 32, 3)
    np.testing.assert_array_equal(batch.actions[0, :, 0], [5.5, 6.5, 7.5])
    assert batch.tasks == ["place"]
    with pytest.raises(KeyError, match=r"observation.wrench"):
        folder.read(0).trajectory(["observation.wrench"])


def test_statistics_are_those_of_the_data(dataset):
    found = LeRobotFolder(dataset).statistics()
    assert sorted(found) == ["action", "observation.state"]
    assert found["observation.state"].mean[0] == pytest.approx(7.5)
    assert found["observation.state"].count == 16


@pytest.mark.parametrize(
    "name",
    [
        "meta/info.json",
        "meta/tasks.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "data/chunk-000/file-000.parquet",
        f"videos/{CAMERA}/chunk-000/file-000.mp4",
    ],
)
def test_a_missing_file_is_named(broken, name):
    (broken / name).unlink()
    with pytest.raises(DatasetError, match=name):
        LeRobotFolder(broken)


@pytest.mark.parametrize("name", ["meta/tasks.parquet", "data/chunk-000/file-000.parquet"])
def test_a_file_that_was_cut_short_is_named(broken, name):
    (broken / name).write_bytes((broken / name).read_bytes()[:-50])
    with pytest.raises(DatasetError, match=f"{name}.*cut short"):
        LeRobotFolder(broken).read(0)


def test_a_number_that_was_changed_is_found_where_the_writer_kept_checksums(broken):
    (file,) = (broken / "data").rglob("*.parquet")
    plain = {"compression": "none", "use_dictionary": False}
    pq.write_table(pq.read_table(file), file, write_page_checksum=True, **plain)
    content = bytearray(file.read_bytes())
    at = content.index(LeRobotFolder(broken).read(1).columns["action"].astype("<f4").tobytes())
    content[at + 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DatasetError, match=r"cannot be read.*CRC"):
        LeRobotFolder(broken).read(1)


def test_a_broken_video_is_named_only_when_its_frames_are_asked_for(broken):
    (broken / f"videos/{CAMERA}/chunk-000/file-000.mp4").write_bytes(b"no video")
    found = LeRobotFolder(broken).read(0)
    assert len(found.columns["action"]) == 5
    with pytest.raises(DatasetError, match=r"Episode 0 .*file-000.mp4 cannot be decoded"):
        found.frames(CAMERA)


def test_a_video_that_is_too_short_is_not_stretched(broken):
    from tests.data.lerobot_folder import write_video

    write_video(broken / f"videos/{CAMERA}/chunk-000/file-000.mp4", 14)
    folder = LeRobotFolder(broken)
    assert len(folder.read(1).frames(CAMERA)) == 7
    with pytest.raises(DatasetError, match=r"Episode 2 .*no frame within 0.0200 s of 1.4000 s"):
        folder.read(2).frames(CAMERA)


@pytest.mark.parametrize("version", ["v1.6", "v4.0"])
def test_other_versions_are_refused_with_the_way_out(broken, version):
    edit_info(broken, codebase_version=version)
    with pytest.raises(
        DatasetError, match=f"LeRobotDataset {version}; versions 2 and 3 are read here. Convert an older"
    ):
        LeRobotFolder(broken)


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
@pytest.mark.parametrize("images", [False, True], ids=["videos", "pictures"])
def test_version_2_is_read_like_version_3(tmp_path, version, images):
    folder = LeRobotFolder(write_dataset_v2(tmp_path / "set", version=version, images=images))
    assert (folder.ids, len(folder), folder.fps) == ([0, 1, 2], 3, 10.0)
    found = folder.read(2)
    assert (len(found), found.task) == (4, "pick")
    np.testing.assert_array_equal(found.columns["observation.state"][:, 0], np.arange(12, 16))
    pictures = found.frames(CAMERA, [3, 0])
    np.testing.assert_allclose(pictures[:, 20, 28].mean(axis=-1), [grey(3), grey(0)], atol=3)
    np.testing.assert_allclose(pictures[:, 4, 4], np.tile([250, 10, 10], (2, 1)), atol=6)
    assert found.frames(CAMERA, []).shape[0] == 0


@pytest.mark.parametrize("name", ["meta/episodes.jsonl", "meta/tasks.jsonl"])
def test_a_missing_or_broken_list_of_version_2_is_named(tmp_path, name):
    root = write_dataset_v2(tmp_path / "set")
    (root / name).write_text('{"episode_index": 0, "length"')
    with pytest.raises(DatasetError, match=f"{name} in .* cannot be read"):
        LeRobotFolder(root)
    (root / name).unlink()
    with pytest.raises(DatasetError, match=f"no {name}"):
        LeRobotFolder(root)


@pytest.mark.parametrize(
    "entry",
    [
        {"length": 1e12},
        {"length": -3},
        {"length": 2.5},
        {"length": 0},
        {"length": "3"},
        {"episode_index": None},
    ],
)
def test_impossible_numbers_of_version_2_are_refused(tmp_path, entry):
    root = write_dataset_v2(tmp_path / "set")
    line = {"episode_index": 0, "length": 5, "tasks": ["pick"]} | entry
    (root / "meta/episodes.jsonl").write_text(json.dumps(line))
    with pytest.raises(DatasetError, match=next(iter(entry)) + r"|no steps"):
        LeRobotFolder(root)


def test_few_bytes_that_stand_for_many_rows_are_not_read(broken):
    rows = 40_000_000
    table = pa.table({"episode_index": pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), [0])})
    pq.write_table(table, broken / "data/chunk-000/file-000.parquet")
    with pytest.raises(DatasetError, match=r"announces 40000000 rows in \d+ bytes"):
        LeRobotFolder(broken).read(0)


def test_texts_where_numbers_were_declared_are_refused(broken):
    file = broken / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file).drop_columns("action")
    pq.write_table(table.append_column("action", pa.array(["1"] * len(table))), file)
    with pytest.raises(DatasetError, match=r"'action' .* holds string, no plain numbers"):
        LeRobotFolder(broken).read(0)


def test_links_that_lead_in_a_circle_are_refused(broken):
    shutil.rmtree(broken / "data")
    (broken / "data").symlink_to(broken / "data")
    with pytest.raises(DatasetError, match="lacks data/"):
        LeRobotFolder(broken)


def test_links_into_the_cache_of_the_hub_are_followed_and_others_are_not(dataset, tmp_path):
    revision, blobs = tmp_path / "set/snapshots/abc", tmp_path / "set/blobs"
    shutil.copytree(dataset, revision)
    blobs.mkdir()
    data = revision / "data/chunk-000/file-000.parquet"
    data.rename(blobs / "123")
    data.symlink_to(blobs / "123")
    assert len(LeRobotFolder(revision).read(0)) == 5
    data.unlink()
    (tmp_path / "elsewhere").write_bytes((blobs / "123").read_bytes())
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match="outside"):
        LeRobotFolder(revision)


@pytest.mark.parametrize(
    "template",
    ["../secret-{file_index:03d}.parquet", "/etc/{file_index}", "{chunk_index.__class__}/../.."],
)
def test_paths_that_lead_outside_are_refused(broken, template):
    (broken.parent / "secret-000.parquet").touch()
    edit_info(broken, data_path=template)
    with pytest.raises(DatasetError, match="outside"):
        LeRobotFolder(broken)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"fps": 0}, "fps 0"),
        ({"features": {"a": {"dtype": "object", "shape": [1]}}}, "'a'.*'object'"),
        ({"features": {"a": {"dtype": "float32", "shape": [10**6, 10**6]}}}, "'a'.*more than"),
        ({"features": {"a": {"dtype": "float32", "shape": [-1]}}}, "'a'.*positive"),
        ({"features": {"a": {"dtype": "float32"}}}, "'a'"),
        ({"features": ["a"]}, "no features"),
        ({"video_path": None}, "no video_path"),
        ({"data_path": "{file_index:0999999999d}"}, "unknown"),
    ],
)
def test_impossible_descriptions_are_refused(broken, changes, match):
    edit_info(broken, **changes)
    with pytest.raises(DatasetError, match=match):
        LeRobotFolder(broken)


def test_rows_that_are_missing_or_empty_are_refused(broken):
    file = broken / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.slice(0, 14), file)
    folder = LeRobotFolder(broken)
    assert len(folder.read(1)) == 7
    with pytest.raises(DatasetError, match="has 4 steps in the episode table, but 2"):
        folder.read(2)
    gaps = pa.array([None, *range(15)], pa.int64())
    pq.write_table(table.set_column(table.schema.get_field_index("action"), "action", gaps), file)
    with pytest.raises(DatasetError, match=r"'action'.*1 empty"):
        LeRobotFolder(broken).read(0)
    pq.write_table(table.drop_columns("observation.state"), file)
    with pytest.raises(DatasetError, match=r"declares 'observation.state'"):
        LeRobotFolder(broken).read(0)


@needs_recordings
def test_doubles_scalars_and_statistics_of_cameras_only_are_read():
    folder = LeRobotFolder(REAL / "lerobot_tiny/lerobotv3")
    found = folder.read(1)
    assert (folder.ids, found.task, len(found)) == ([0, 1], "pick cube", 3)
    np.testing.assert_allclose(found.columns["observation.state"], [[0.3], [0.4], [0.5]], atol=1e-7)
    assert found.columns["action"].dtype == np.float32
    assert found.frames("observation.images.cam").shape == (3, 64, 64, 3)
    assert sorted(folder.statistics()) == ["action", "observation.state"]


@needs_recordings
@pytest.mark.parametrize("name", ["lerobotv2", "lerobotv2-image"])
def test_real_version_2_sets_are_read(name):
    folder = LeRobotFolder(REAL / "lerobot_tiny" / name)
    found = folder.read(1)
    assert (folder.version, folder.ids, found.task, len(found)) == ("v2.1", [0, 1], "pick cube", 3)
    np.testing.assert_allclose(found.columns["action"], [[0.0], [0.05], [0.1]], atol=1e-7)
    pictures = found.frames("observation.images.cam")
    assert pictures.shape == (3, 64, 64, 3)
    np.testing.assert_allclose(pictures[2, 30, 30], [0, 100 if "image" in name else 0, 255], atol=3)


@needs_recordings
@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("lerobot_invalid/v2-missing-episodes", "no meta/episodes.jsonl; without it no episode is found"),
        ("lerobot_invalid/v3-missing-episodes-parquet", "no meta/episodes/chunk-000/file-000.parquet"),
        ("d4rl_style", "no meta/info.json"),
    ],
)
def test_recordings_that_cannot_be_read_are_refused_as_they_deserve(name, match):
    with pytest.raises(DatasetError, match=match):
        LeRobotFolder(REAL / name)


JUDGE = """
import sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
options = {"video_backend": "pyav", "return_uint8": True, "download_videos": False}
found = {}
for job in sys.argv[2:]:
    root, *rows = job.split(",")
    judge = LeRobotDataset("local/set", root=root, **options)
    for row in rows:
        for key, value in judge[int(row)].items():
            found[f"{root},{row},{key}"] = np.array(value) if isinstance(value, str) else value.numpy()
np.savez(sys.argv[1], **found)
"""


@pytest.mark.slow
@pytest.mark.timeout(240)  # LeRobot alone takes ten seconds to import, and minutes on a busy machine
@needs_lerobot
def test_lerobot_itself_reads_the_same(dataset, tmp_path):
    asked = {dataset: [(0, 0), (0, 4), (1, 0), (1, 6), (2, 2)]}
    if REAL.is_dir():
        asked[REAL / "lerobot_v3_piper"] = [(0, t) for t in (0, 1, 77, 150, 299)]
    starts = {root: np.cumsum([0, *map(len, LeRobotFolder(root))]) for root in asked}
    jobs = [",".join([str(root), *(str(starts[root][e] + t) for e, t in asked[root])]) for root in asked]
    command = [sys.executable, "-c", JUDGE, str(tmp_path / "judge.npz"), *jobs]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "hf"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "judge.npz") as judged:
        for root, places in asked.items():
            for number, step in places:
                ours = LeRobotFolder(root).read(number)
                where = f"{root},{starts[root][number] + step}"
                for key, rows in ours.columns.items():
                    np.testing.assert_array_equal(rows[step], judged[f"{where},{key}"])
                for camera in ours.folder.cameras:
                    theirs = judged[f"{where},{camera}"].transpose(1, 2, 0)
                    np.testing.assert_array_equal(ours.frames(camera, [step])[0], theirs)
                assert ours.timestamps[step] == judged[f"{where},timestamp"]
                assert ours.tasks[step] == judged[f"{where},task"]


@needs_recordings
def test_a_real_arm_is_read_as_its_notes_say():
    folder = LeRobotFolder(REAL / "lerobot_v3_piper")
    found = folder.read(0)
    assert (len(folder), len(found), folder.fps, found.task) == (1, 300, 15.0, "pick up the pen")
    assert int((np.diff(found.columns["action"], axis=0) == 0).all(axis=1).sum()) == 69
    assert int((np.diff(found.columns["observation.state"], axis=0) == 0).all(axis=1).sum()) == 64
    assert found.frames("observation.images.wrist", [0, 299]).shape == (2, 240, 424, 3)


def test_a_video_whose_frames_were_damaged_is_not_filled_with_grey(broken):
    file = broken / f"videos/{CAMERA}/chunk-000/file-000.mp4"
    content = bytearray(file.read_bytes())
    start = content.index(b"mdat") + len(content) // 4
    content[start : start + 300] = bytes(byte ^ 0x5A for byte in content[start : start + 300])
    file.write_bytes(content)
    folder = LeRobotFolder(broken)
    with pytest.raises(DatasetError, match=r"file-000.mp4 cannot be decoded"):
        [found.frames(CAMERA) for found in folder]


def test_pictures_of_depth_are_refused_and_the_rest_is_read(broken):
    info = json.loads((broken / "meta/info.json").read_text())
    info["features"][CAMERA]["shape"] = [24, 32, 1]
    (broken / "meta/info.json").write_text(json.dumps(info))
    found = LeRobotFolder(broken).read(0)
    assert len(found.columns["action"]) == 5
    with pytest.raises(DatasetError, match="1 channel, such as depth"):
        found.frames(CAMERA)


def replace_column(root, name, values):
    file = next(root.glob("data/chunk-000/*.parquet"))
    table = pq.read_table(file)
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, pa.array(values)), file)


@pytest.mark.parametrize("key", ["frame_index", "task_index", "timestamp", "action"])
@pytest.mark.parametrize(
    "values",
    [
        [b"ab"] * 16,
        ["x"] * 16,
        [{"bytes": b"ab"}] * 16,
        [[1.0, 2.0, 3.0]] * 16,
        [[[1.0], [2.0], [4.0]]] * 16,
        [float("nan")] * 16,
        [None, *range(15)],
    ],
    ids=["bytes", "text", "struct", "list", "nested", "nan", "empty"],
)
def test_index_columns_of_any_other_kind_are_refused(broken, key, values):
    replace_column(broken, key, values)
    with pytest.raises(DatasetError, match=f"{key}|tasks"):
        LeRobotFolder(broken).read(0)


@pytest.mark.parametrize("start", [float("nan"), -1.0, "x", b"ab", None])
def test_impossible_starts_in_a_video_are_refused(broken, start):
    file = broken / "meta/episodes/chunk-000/file-000.parquet"
    table, key = pq.read_table(file), f"videos/{CAMERA}/from_timestamp"
    place = table.schema.get_field_index(key)
    pq.write_table(table.set_column(place, key, pa.array([start] * 3)), file)
    with pytest.raises(DatasetError, match="from_timestamp"):
        LeRobotFolder(broken)


@pytest.mark.parametrize(
    "changes",
    [{"chunks_size": "{x}"}, {"chunks_size": -1}, {"data_path": "a\0b"}, {"data_path": "../{index}"}],
)
def test_impossible_descriptions_of_version_2_are_refused(tmp_path, changes):
    root = write_dataset_v2(tmp_path / "set")
    edit_info(root, **changes)
    with pytest.raises(DatasetError, match=r"chunks_size|zero byte|unknown"):
        LeRobotFolder(root)


def test_column_names_that_are_no_text_are_refused(broken):
    file = broken / "meta/episodes/chunk-000/file-000.parquet"
    file.write_bytes(file.read_bytes().replace(b"dataset_from_index", b"dataset_\xaf\xaf\xaf\xaf_index"))
    with pytest.raises(DatasetError, match=r"file-000.parquet in .* cannot be read"):
        LeRobotFolder(broken)
