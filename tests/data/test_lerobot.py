import importlib.util
import json
import os
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
from tests.data.lerobot_folder import CAMERA, FPS, grey, write_dataset

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


@pytest.mark.parametrize("version", ["v2.1", "v1.6", "v4.0"])
def test_other_versions_are_refused_with_the_way_out(broken, version):
    edit_info(broken, codebase_version=version)
    with pytest.raises(
        DatasetError, match=f"LeRobotDataset {version}; version 3.*convert_dataset_v21_to_v30"
    ):
        LeRobotFolder(broken)


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
    [({"fps": 0}, "fps 0"), ({"features": {"a": {"dtype": "object", "shape": [1]}}}, "'a'.*'object'")],
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
@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("lerobot_tiny/lerobotv2", "LeRobotDataset v2.1.*convert"),
        ("lerobot_tiny/lerobotv2-image", "LeRobotDataset v2.1.*convert"),
        ("lerobot_invalid/v2-missing-episodes", "v2.1.*meta/episodes.jsonl.*missing"),
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
