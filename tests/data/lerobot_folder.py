"""Writes a LeRobotDataset v3 folder, three episodes in one video; its frame k has the grey level 20 + 9 k."""

import json

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FPS = 10
CAMERA = "observation.images.top"


def grey(frame):
    return 20 + 9 * frame


def write_video(path, frames, fps=FPS):
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options={"g": "4", "crf": "0"})
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv444p"
        for k in range(frames):
            picture = np.full((24, 32, 3), grey(k), np.uint8)
            picture[:12, :16] = [
                250,
                10,
                10,
            ]  # the upper left corner is red: shows a swap of axes or channels
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def column(rows):
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1), pa.float32()), rows.shape[1])


def write_dataset(root, lengths=(5, 7, 4), version="v3.0"):
    total = sum(lengths)
    starts = np.cumsum([0, *lengths])
    steps = np.concatenate([np.arange(length) for length in lengths])
    number = np.repeat(np.arange(len(lengths)), lengths)
    one = {"shape": [1], "names": None}
    info = {
        "codebase_version": version,
        "robot_type": "test_arm",
        "total_episodes": len(lengths),
        "total_frames": total,
        "total_tasks": 2,
        "fps": FPS,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {
            "observation.state": {"dtype": "float32", "shape": [2], "names": ["a.pos", "b.pos"]},
            "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["a.pos", "b.pos"]}},
            CAMERA: {"dtype": "video", "shape": [24, 32, 3], "names": ["height", "width", "channels"]},
            "timestamp": {"dtype": "float32", **one},
            **{
                key: {"dtype": "int64", **one}
                for key in ("frame_index", "episode_index", "index", "task_index")
            },
        },
    }
    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    state = np.stack([np.arange(total), number * 100 + steps], axis=1).astype(np.float32)
    table = {
        "observation.state": column(state),
        "action": column(state + 0.5),
        "timestamp": pa.array((steps / FPS).astype(np.float32)),
        "frame_index": pa.array(steps),
        "episode_index": pa.array(number),
        "index": pa.array(np.arange(total)),
        "task_index": pa.array(number % 2),
    }
    pq.write_table(pa.table(table), root / "data/chunk-000/file-000.parquet")
    tasks = {"task_index": pa.array([0, 1]), "__index_level_0__": pa.array(["pick", "place"])}
    kinds = [("task_index", "task_index", "int64"), (None, "__index_level_0__", "object")]
    fields = [
        {"name": name, "field_name": field, "pandas_type": kind, "numpy_type": kind, "metadata": None}
        for name, field, kind in kinds
    ]
    index = {"index_columns": ["__index_level_0__"], "column_indexes": [], "columns": fields}
    labelled = pa.table(tasks).replace_schema_metadata({"pandas": json.dumps(index)})
    pq.write_table(labelled, root / "meta/tasks.parquet")
    zeros = [0] * len(lengths)
    episodes = {
        "episode_index": list(range(len(lengths))),
        "tasks": [[["pick", "place"][i % 2]] for i in range(len(lengths))],
        "length": list(lengths),
        "data/chunk_index": zeros,
        "data/file_index": zeros,
        "dataset_from_index": starts[:-1].tolist(),
        "dataset_to_index": starts[1:].tolist(),
        f"videos/{CAMERA}/chunk_index": zeros,
        f"videos/{CAMERA}/file_index": zeros,
        f"videos/{CAMERA}/from_timestamp": (starts[:-1] / FPS).tolist(),
        f"videos/{CAMERA}/to_timestamp": (starts[1:] / FPS).tolist(),
        "meta/episodes/chunk_index": zeros,
        "meta/episodes/file_index": zeros,
    }
    pq.write_table(pa.table(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
    write_video(root / f"videos/{CAMERA}/chunk-000/file-000.mp4", total)
    return root
