"""Writes LeRobotDataset folders of three episodes; frame k of a version 3 video has grey level 20 + 9 k."""

import json
import shutil
from fractions import Fraction

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


def add_columns(root, **columns):
    """Add columns of one number per step, given as name=(dtype, values); "__" stands for a dot."""
    info = json.loads((root / "meta/info.json").read_text())
    file = root / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    for name, (dtype, values) in columns.items():
        key = name.replace("__", ".")
        info["features"][key] = {"dtype": dtype, "shape": [1], "names": None}
        table = table.append_column(key, pa.array(np.asarray(values, dtype)))
    (root / "meta/info.json").write_text(json.dumps(info))
    pq.write_table(table, file)


def picture(level):
    """A PNG of one grey level with a red upper left corner, 24 x 32."""
    pixels = np.full((24, 32, 3), level, np.uint8)
    pixels[:12, :16] = [250, 10, 10]
    encoder = av.CodecContext.create("png", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 32, 24, "rgb24"
    encoder.time_base = Fraction(1, FPS)
    packets = [*encoder.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)


def write_dataset_v2(root, lengths=(5, 7, 4), version="v2.1", *, images=False):
    """The same episodes as version 2 keeps them; each video or picture starts anew with grey(0)."""
    write_dataset(root, lengths, version)
    info = json.loads((root / "meta/info.json").read_text())
    info["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    info["video_path"] = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    info["chunks_size"] = 2  # so that the third episode lies in the second chunk
    info["features"][CAMERA]["dtype"] = "image" if images else "video"
    (root / "meta/info.json").write_text(json.dumps(info))
    table = pq.read_table(root / "data/chunk-000/file-000.parquet")
    rows, start = [], 0
    for number, length in enumerate(lengths):
        part = table.slice(start, length)
        if images:
            pictures = [{"bytes": picture(grey(t)), "path": f"frame_{t}.png"} for t in range(length)]
            part = part.append_column(CAMERA, pa.array(pictures))
        folder = root / f"data/chunk-{number // 2:03d}"
        folder.mkdir(exist_ok=True)
        pq.write_table(part, folder / f"episode_{number:06d}.parquet")
        if not images:
            write_video(root / f"videos/chunk-{number // 2:03d}/{CAMERA}/episode_{number:06d}.mp4", length)
        task = ["pick", "place"][number % 2]
        rows.append({"episode_index": number, "tasks": [task], "length": length})
        start += length
    shutil.rmtree(root / "meta/episodes")
    for name in ("data/chunk-000/file-000.parquet", "meta/tasks.parquet"):
        (root / name).unlink()
    tasks = [{"task_index": 0, "task": "pick"}, {"task_index": 1, "task": "place"}]
    for name, lines in (("episodes", rows), ("tasks", tasks)):
        (root / f"meta/{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root
