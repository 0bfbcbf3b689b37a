"""Pictures of a LeRobotDataset: what is damaged or of another size is refused."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from data.errors import DatasetError
from data.lerobot import LeRobotFolder
from tests.data.lerobot_folder import CAMERA, write_dataset_v2


def test_pictures_and_videos_of_another_size_than_declared_are_not_decoded(tmp_path):
    for images in (False, True):
        root = write_dataset_v2(tmp_path / str(images), images=images)
        info = json.loads((root / "meta/info.json").read_text())
        info["features"][CAMERA]["shape"] = [12, 16, 3]
        (root / "meta/info.json").write_text(json.dumps(info))
        with pytest.raises(DatasetError, match="32 x 24 pixels; 16 x 12 were declared"):
            LeRobotFolder(root).read(0).frames(CAMERA)


def test_pictures_beside_the_table_are_not_followed(tmp_path):
    root = write_dataset_v2(tmp_path / "set", images=True)
    file = root / "data/chunk-000/episode_000000.parquet"
    table = pq.read_table(file).drop_columns(CAMERA)
    paths = pa.array(
        [{"bytes": None, "path": "/etc/passwd"}] * 5,
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    pq.write_table(table.append_column(CAMERA, paths), file)
    with pytest.raises(DatasetError, match=r"no picture of observation.images.top inside"):
        LeRobotFolder(root).read(0).frames(CAMERA)


@pytest.mark.parametrize("entry", [b"no picture", 0, "text", {"path": "a"}, [1]])
def test_what_is_no_picture_is_refused(tmp_path, entry):
    root = write_dataset_v2(tmp_path / "set", images=True)
    file = root / "data/chunk-000/episode_000000.parquet"
    table = pq.read_table(file).drop_columns(CAMERA)
    pq.write_table(table.append_column(CAMERA, pa.array([entry] * 5)), file)
    with pytest.raises(DatasetError, match="picture"):
        LeRobotFolder(root).read(0).frames(CAMERA)


def test_a_jpeg_that_was_cut_short_is_not_filled_with_grey(tmp_path):
    root = write_dataset_v2(tmp_path / "set", images=True)
    file = root / "data/chunk-000/episode_000000.parquet"
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, "JPEG")
    table = pq.read_table(file).drop_columns(CAMERA)
    for content in (buffer.getvalue(), buffer.getvalue()[:-200]):
        pq.write_table(table.append_column(CAMERA, pa.array([content] * 5)), file)
        if content == buffer.getvalue():
            assert LeRobotFolder(root).read(0).frames(CAMERA).shape == (5, 24, 32, 3)
    with pytest.raises(DatasetError, match="no whole JPEG or PNG"):
        LeRobotFolder(root).read(0).frames(CAMERA)
