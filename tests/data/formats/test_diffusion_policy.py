import json
import zipfile

import numcodecs
import numpy as np
import pytest
import zarr

from data.errors import DatasetError
from data.formats.registry import detect, open_source

ENDS = [4, 5, 11]


def content(steps=11):
    rng = np.random.default_rng(5)
    return {
        "action": rng.normal(size=(steps, 2)).astype(np.float32),
        "state": rng.normal(size=(steps, 5)).astype(np.float32),
        "img": rng.integers(0, 256, (steps, 6, 4, 3)).astype(np.float32),
        "keypoint": rng.normal(size=(steps, 9, 2)),
    }


def write(path, arrays=None, ends=ENDS, chunks=3, **settings):
    group = zarr.open_group(path, mode="w", zarr_format=2)
    for name, value in (arrays or content()).items():
        array = group.create_array(
            f"data/{name}",
            shape=value.shape,
            dtype=value.dtype,
            chunks=(chunks, *value.shape[1:]),
            **({"compressors": None} | settings),
        )
        array[:] = value
    ends = np.array(ends, np.int64)
    group.create_array("meta/episode_ends", shape=ends.shape, dtype=ends.dtype, compressors=None)[:] = ends
    return path


def pack(folder, target, below=""):
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, below + file.relative_to(folder).as_posix())
    return target


@pytest.fixture
def buffer(tmp_path):
    return write(tmp_path / "buffer.zarr")


def edit_meta(buffer, name, **changes):
    file = buffer / name / ".zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def check(path, given=None):
    given = given or content()
    source = open_source(path)
    episodes = list(source.episodes)
    assert source.count == 3
    assert [len(e) for e in episodes] == [4, 1, 6]
    starts = [0, *ENDS[:-1]]
    for episode, start, stop in zip(episodes, starts, ENDS, strict=True):
        np.testing.assert_array_equal(episode.action, given["action"][start:stop].astype(float))
        for name, key in (("state", "state"), ("img", "images.img"), ("keypoint", "keypoint")):
            np.testing.assert_array_equal(
                episode.observations[f"observation.{key}"][:-1], given[name][start:stop]
            )
        assert episode.truncated.tolist() == [False] * (stop - start - 1) + [True]
    return source, episodes


def test_a_folder_is_read_episode_by_episode(buffer):
    assert detect(buffer) == "diffusion-policy"
    source, episodes = check(buffer)
    assert source.features["observation.images.img"].dtype == "uint8"
    assert source.features["observation.images.img"].shape == (6, 4, 3)
    assert source.features["observation.keypoint"].shape == (9, 2)
    assert episodes[2].metadata["rows"] == [5, 11]


@pytest.mark.parametrize("below", ["", "buffer.zarr/"])
def test_a_zip_file_is_read_in_place(buffer, tmp_path, below):
    path = pack(buffer, tmp_path / "buffer.zarr.zip", below)
    if below:
        assert open_source(path, "diffusion-policy").count == 3
    assert detect(path) == "diffusion-policy"
    check(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["buffer.zarr", "buffer.zarr.zip"]


@pytest.mark.parametrize(
    "codec",
    [
        numcodecs.Blosc(cname="zstd", clevel=5, shuffle=2),
        numcodecs.Zstd(),
        numcodecs.LZ4(),
        numcodecs.Zlib(),
        numcodecs.GZip(),
        numcodecs.BZ2(),
        numcodecs.LZMA(),
    ],
    ids=lambda codec: codec.codec_id,
)
def test_every_codec_and_order_is_undone(tmp_path, codec):
    check(write(tmp_path / "a.zarr", compressors=codec, order="F"))


def test_big_endian_numbers_and_chunks_along_every_axis(tmp_path):
    given = content()
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    for name, value in given.items():
        kind = value.dtype.newbyteorder(">")
        separated = {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
        array = group.create_array(
            f"data/{name}",
            shape=value.shape,
            dtype=kind,
            chunks=(2,) * value.ndim,
            compressors=None,
            **separated,
        )
        array[:] = value
    group.create_array("meta/episode_ends", data=np.array(ENDS), compressors=None)
    check(tmp_path / "a.zarr", given)


def test_a_missing_chunk_is_an_error_and_not_zeros(buffer):
    (buffer / "data/state/2.0").unlink()
    assert (zarr.open_group(buffer)["data/state"][6:9] == 0).all()  # what Zarr makes of it
    with pytest.raises(DatasetError, match=r"lacks chunks, among them data/state/2\.0"):
        open_source(buffer)


def test_chunks_left_out_on_purpose_are_filled_when_told_so(buffer):
    (buffer / "data/state/2.0").unlink()
    edit_meta(buffer, "data/state", fill_value=-7.5)
    source = open_source(buffer, missing_chunks="fill")
    last = list(source.episodes)[2]
    assert (last.observations["observation.state"][1:4] == -7.5).all()
    assert "data/state lacks chunks; its fill value stands for them." in source.notes


def test_a_chunk_that_vanishes_while_reading_is_an_error(buffer):
    source = open_source(buffer)
    (buffer / "data/action/2.0").unlink()
    with pytest.raises(DatasetError, match=r"chunk data/action/2\.0 is missing"):
        list(source.episodes)


def test_chunks_cut_short_or_too_long_are_named(tmp_path):
    path = write(tmp_path / "a.zarr", compressors=numcodecs.Zstd())
    file = path / "data/action/1.0"
    whole = file.read_bytes()
    for broken in (whole[:-3], numcodecs.Zstd().encode(b"\1" * 8), numcodecs.Zstd().encode(b"\1" * 80_000)):
        file.write_bytes(broken)
        with pytest.raises(DatasetError, match=r"chunk data/action/1\.0 cannot be decoded"):
            list(open_source(path).episodes)


@pytest.mark.parametrize("codec", [numcodecs.Zlib(), numcodecs.Blosc(), numcodecs.BZ2(), numcodecs.LZ4()])
def test_a_chunk_that_would_unfold_to_more_is_stopped(tmp_path, codec):
    path = write(tmp_path / "a.zarr", compressors=codec)
    (path / "data/action/1.0").write_bytes(codec.encode(np.zeros(100_000, np.uint8)))
    with pytest.raises(
        DatasetError, match=r"chunk data/action/1\.0 cannot be decoded: .*24 (bytes|are needed)"
    ):
        list(open_source(path).episodes)


def test_an_absurd_shape_is_refused_at_once(buffer):
    edit_meta(buffer, "data/state", shape=[10**15, 5])
    with pytest.raises(DatasetError, match=r"among them data/state/4\.0"):
        open_source(buffer)
    edit_meta(buffer, "data/state", shape=[11, 5], chunks=[10**15, 5])
    with pytest.raises(DatasetError, match=r"one chunk of data/state unfolds to \d+ bytes, which passes"):
        open_source(buffer, missing_chunks="fill")


def test_the_limit_can_be_set(buffer):
    with pytest.raises(
        DatasetError, match=r"passes the limit of 200 bytes per episode.*raise max_decoded_bytes"
    ):
        list(open_source(buffer, max_decoded_bytes=200).episodes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "|O"}, "no objects"),
        ({"dtype": [["a", "<f4"]]}, "no objects"),
        ({"dtype": "<M8[s]"}, "only plain numbers"),
        ({"filters": [{"id": "pickle"}]}, "packed with .*pickle"),
        ({"compressor": {"id": "imagecodecs_jpegxl"}}, "packed with 'imagecodecs_jpegxl'"),
        ({"compressor": {"id": "pickle"}}, "packed with 'pickle'"),
        ({"zarr_format": 3}, "no Zarr 2 array"),
        ({"shape": [11, -5]}, "no Zarr 2 array"),
        ({"chunks": [3, 0]}, "no Zarr 2 array"),
        ({"shape": "11"}, "no Zarr 2 array|no array metadata"),
    ],
)
def test_arrays_of_other_kinds_are_refused(buffer, changes, message):
    edit_meta(buffer, "data/state", **changes)
    with pytest.raises(DatasetError, match=message):
        open_source(buffer)


@pytest.mark.parametrize("ends", [[4, 4, 11], [4, 3, 11], [4, 12], [4, 10]])
def test_ends_that_do_not_fit_are_refused(tmp_path, ends):
    with pytest.raises(DatasetError, match=r"must grow|the last episode ends at row"):
        open_source(write(tmp_path / "a.zarr", ends=ends))


def test_a_link_out_of_the_folder_is_not_followed(buffer, tmp_path):
    secret = tmp_path / "secret"
    chunk = buffer / "data/action/1.0"
    secret.write_bytes(chunk.read_bytes())
    chunk.unlink()
    chunk.symlink_to(secret)
    with pytest.raises(DatasetError, match=r"leads to .*secret, outside"):
        list(open_source(buffer).episodes)


def test_a_zip_file_that_names_something_outside_is_not_read(buffer, tmp_path):
    path = pack(buffer, tmp_path / "a.zarr.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("data/../../evil", b"x")
    with pytest.raises(DatasetError, match=r"names \['data/../../evil'\]"):
        open_source(path)
    assert not (tmp_path.parent / "evil").exists()


def test_a_zip_bomb_is_not_unpacked(buffer, tmp_path):
    (buffer / "data/state/1.0").write_bytes(bytes(10_000_000))
    path = tmp_path / "a.zarr.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(buffer.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(buffer).as_posix())
    with pytest.raises(DatasetError, match=r"data/state/1\.0 unfolds to 10000000 bytes, more than"):
        list(open_source(path).episodes)


def test_a_zip_file_cut_short_is_refused(buffer, tmp_path):
    path = pack(buffer, tmp_path / "a.zarr.zip")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DatasetError, match="cannot be opened as zip, it may be cut short"):
        open_source(path, "diffusion-policy")


def test_time_stamps_are_kept_as_measured(tmp_path):
    stamps = 1.7e9 + np.array([0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 12]) / 8
    path = write(tmp_path / "a.zarr", content() | {"timestamp": stamps})
    first, _, last = open_source(path).episodes
    assert first.wall_time.tolist() == stamps[:4].tolist()
    assert first.monotonic_time.tolist() == [0, 0.125, 0.25, 0.5]
    assert last.metadata["times"] == "measured"
    assert last.monotonic_time[-1] == 0.75
    assert "observation.timestamp" not in last.observations


def test_pictures_with_the_channels_first_say_so(tmp_path):
    channels_first = np.arange(11 * 3 * 4 * 6).reshape(11, 3, 4, 6).astype(np.uint8)
    path = write(tmp_path / "a.zarr", content() | {"camera": channels_first})
    source = open_source(path)
    assert source.features["observation.camera"].layout == "chw"
    assert not source.features["observation.camera"].is_image
    last = list(source.episodes)[2]
    np.testing.assert_array_equal(last.observations["observation.camera"][:-1], channels_first[5:])


def test_a_linked_folder_is_refused_and_not_passed_over(buffer, tmp_path):
    (buffer / "data/state").rename(tmp_path / "state")
    (buffer / "data/state").symlink_to(tmp_path / "state")
    with pytest.raises(DatasetError, match="folder 'state' is a link"):
        open_source(buffer)


def test_pictures_of_other_numbers_are_refused(tmp_path):
    arrays = content()
    arrays["img"] /= 255
    with pytest.raises(DatasetError, match="data/img has the shape of pictures but holds float32"):
        open_source(write(tmp_path / "a.zarr", arrays))
    stored = next(open_source(tmp_path / "a.zarr", pictures="stored").episodes)
    np.testing.assert_array_equal(stored.observations["observation.images.img"][:4], arrays["img"][:4])
