import warnings

import av
import numpy as np
import pytest
import zarr

from data.errors import DamagedEpisodeError, StoreError
from data.images import PictureCodec, PictureError
from data.picture_files import Pictures, PictureWriter
from data.picture_video import decode_av1, encode_av1
from data.records import EpisodeBuilder, Outcome, Step, equal
from data.store import EpisodeStore
from tests.data.episodes import streaming_episode
from tests.data.test_images import scene

GEL = "observation.images.gel"
KEY = "observation.images.top"
PATH = f"e/observations/{KEY}"


def pictures(count=7):
    """The scene moving to the right, standing still from picture 3 to 4."""
    return np.stack([np.roll(scene(), 3 * (i - (i > 3)), axis=1) for i in range(count)])


def write(folder, codec=None, count=7):
    store = EpisodeStore(folder, pictures=codec)
    store.write(made(count))
    return store


def made(count=7):
    builder = EpisodeBuilder(id="e", task="t")
    fill(builder, count)
    return builder.finish(Outcome.SUCCESS)


def fill(target, count=7):
    seen = pictures(count)
    target.start({KEY: seen[0]})
    for t in range(count - 1):
        target.stream(GEL, 0.1 * t, 1e9, np.rot90(seen[t]).copy())
        target.append(Step(action=[t], wall_time=1e9, monotonic_time=0.1 * t), {KEY: seen[t + 1]})


def test_pictures_are_stored_lossless_and_zarr_reads_them(tmp_path):
    store = write(tmp_path / "s")
    assert equal(store.read("e"), made())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = zarr.open_group(store.path, mode="r")[PATH]
        np.testing.assert_array_equal(array[:], pictures())
        np.testing.assert_array_equal(array[2:4], pictures()[2:4])
    size = (store.path / PATH / "c.0.0.0.0").stat().st_size
    assert size < pictures().nbytes / 10


def test_a_picture_equal_to_the_one_before_takes_no_room(tmp_path):
    writer = PictureWriter(tmp_path / "f", PictureCodec(), (48, 64, 3))
    rows = [writer.add(picture) for picture in pictures()]
    writer.close()
    assert rows[3] == rows[4]
    assert len(set(rows)) == 6
    assert writer.repeated == 1


def test_single_pictures_are_read_without_the_others(tmp_path):
    for name, codec in (("lossless", None), ("jpeg", PictureCodec("jpeg", 95))):
        store = write(tmp_path / name, codec)
        whole = store.read("e").observations[KEY]
        with store.pictures("e", KEY) as found:
            assert found.shape == (7, 48, 64, 3)
            np.testing.assert_array_equal(found[5], whole[5])
            np.testing.assert_array_equal(found[-2:], whole[-2:])
            np.testing.assert_array_equal(found[[4, 0, 0, 3]], whole[[4, 0, 0, 3]])
            with pytest.raises(IndexError):
                found[7]
        with store.pictures("e", GEL, stream=True) as found:
            np.testing.assert_array_equal(found[1], store.read("e").streams[GEL].values[1])
    with pytest.raises(KeyError, match=r"no pictures at 'observations/observation\.images\.left'"):
        store.pictures("e", "observation.images.left")


def test_jpeg_is_said_in_the_attributes_and_close_to_the_original(tmp_path):
    store = write(tmp_path / "s", PictureCodec("jpeg", 90))
    found = store.read("e").observations[KEY]
    assert np.abs(found.astype(int) - pictures()).mean() < 4
    group = zarr.open_group(store.path / "e", mode="r")
    assert group.attrs["pictures"][f"observations/{KEY}"] == {
        "shape": [7, 48, 64, 3],
        "codec": {"kind": "jpeg", "quality": 90},
    }
    offset, size, _ = group[f"observations/{KEY}/frames"][5]
    content = group[f"observations/{KEY}/bytes"][offset : offset + size].tobytes()
    assert content[:3] == b"\xff\xd8\xff"
    assert content[-2:] == b"\xff\xd9"


def test_a_store_may_hold_several_codecs(tmp_path):
    write(tmp_path / "s", PictureCodec("jpeg"))
    store = EpisodeStore(tmp_path / "s")
    store.write(streaming_episode())
    assert equal(store.read("streams"), streaming_episode())
    assert len(store.read("e")) == 6


def test_without_pictures_the_rest_is_read(tmp_path):
    found = write(tmp_path / "s").read("e", pictures=False)
    assert not found.observations
    assert not found.streams
    np.testing.assert_array_equal(found.action, made().action)


@pytest.mark.parametrize("codec", [PictureCodec(), PictureCodec("jpeg")])
@pytest.mark.parametrize("where", [30, -30])
def test_a_changed_picture_is_named_and_the_others_can_be_read(tmp_path, codec, where):
    store = write(tmp_path / "s", codec)
    file = store.path / PATH / ("c.0.0.0.0" if codec.kind == "lossless" else "bytes/c.0")
    content = bytearray(file.read_bytes())
    content[where] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedEpisodeError, match=r"Episode e is damaged: observations/.*top"):
        store.read("e")
    if codec.kind == "jpeg":
        with store.pictures("e", KEY) as found:
            assert found[3].shape == (48, 64, 3)
            with pytest.raises(PictureError, match=r"picture \d: its checksum is wrong"):
                found[0 if where > 0 else 6]


def test_a_table_that_leads_outside_is_refused(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 100)
    for row in ([90, 11, 0], [-1, 5, 0], [5, 1 << 60, 0], [1 << 62, 1 << 62, 0]):
        with pytest.raises(PictureError, match="outside"):
            Pictures(tmp_path / "f", PictureCodec("jpeg"), (4, 4, 3), np.array([row]))


def test_pictures_that_do_not_fit_into_memory_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    store = write(tmp_path / "s")
    monkeypatch.setattr("data.episode_folder.available_memory", lambda: 4096)
    with pytest.raises(StoreError, match=r"take 0.0 GB when unpacked.*pictures=False"):
        store.read("e")
    assert len(store.read("e", pictures=False)) == 6
    with store.pictures("e", KEY) as found:
        np.testing.assert_array_equal(found[6], pictures()[6])
    assert store.damages() == {}
    file = store.path / PATH / "c.0.0.0.0"
    content = bytearray(file.read_bytes())
    content[30] ^= 1
    file.write_bytes(content)
    assert "picture 0" in store.damages()["e"]


def test_recorded_pictures_equal_those_that_were_seen_and_repeats_are_counted(tmp_path):
    store = EpisodeStore(tmp_path / "s")
    recorder = store.recorder(id="e", task="t", flush_every=2)
    fill(recorder, 7)
    recorder.stream("observation.wrench", 1.0, 1e9, np.zeros(6))
    recorder.stream("observation.wrench", 1.0, 1e9, np.ones(6))
    recorder.finish(Outcome.SUCCESS)
    found = store.read("e")
    np.testing.assert_array_equal(found.observations[KEY], pictures())
    np.testing.assert_array_equal(found.streams[GEL].values, made().streams[GEL].values)
    assert found.metadata["repeated"] == {
        f"observations/{KEY}": 1,
        "streams/observation.images.gel/values": 1,
        "streams/observation.wrench/values": 1,
    }


@pytest.mark.parametrize("codec", [PictureCodec(), PictureCodec("jpeg", 95)])
def test_a_torn_recording_is_recovered_with_its_pictures_up_to_the_last_that_is_whole(tmp_path, codec):
    store = EpisodeStore(tmp_path / "s", pictures=codec)
    recorder = store.recorder(id="e", task="t", flush_every=2)
    fill(recorder, 7)
    recorder.close()
    folder = store.path / ".recording/e"
    file = folder / "pictures-000"
    places = [np.load(path)[f"observations/{KEY}"] for path in sorted(folder.glob("segment-*.npz"))]
    assert [len(rows) for rows in places] == [3, 2, 2]
    content = bytearray(file.read_bytes())
    content[places[2][0, 0] + 9] ^= 1  # the picture after step 4
    file.write_bytes(content)
    found = store.recover("e")
    assert len(found) == 4
    tolerance = 0 if codec.kind == "lossless" else 40
    np.testing.assert_allclose(found.observations[KEY].astype(int), pictures()[:5], atol=tolerance)
    assert len(found.streams[GEL]) == 4


def test_a_recording_whose_picture_file_was_cut_ends_before(tmp_path):
    store = EpisodeStore(tmp_path / "s")
    recorder = store.recorder(id="e", task="t", flush_every=2)
    fill(recorder, 7)
    recorder.close()
    file = store.path / ".recording/e/pictures-000"
    file.write_bytes(file.read_bytes()[:-1])
    assert store.partials()[0].steps == 4
    assert len(store.recover("e")) == 4


def test_a_picture_of_another_size_is_refused_and_leaves_no_trace(tmp_path):
    store = EpisodeStore(tmp_path / "s")
    recorder = store.recorder(id="e", task="t")
    recorder.start({KEY: scene()})
    step = Step(action=[0], wall_time=0.0, monotonic_time=0.0)
    with pytest.raises(ValueError, match=r"step 0: observations/observation.images.top is uint8\(4, 4, 3\)"):
        recorder.append(step, {KEY: scene()[:4, :4]})
    with pytest.raises(ValueError, match="missing sensor"):
        recorder.append(step, {})
    recorder.append(step, {KEY: scene()[::-1]})
    recorder.finish()
    np.testing.assert_array_equal(store.read("e").observations[KEY], [scene(), scene()[::-1]])


def large(count=5):
    """Pictures with odd sides, large enough for a video."""
    return np.stack([np.roll(scene(67, 91), 2 * i, axis=1) for i in range(count)])


@pytest.mark.parametrize("recorded", [False, True])
def test_a_video_is_made_when_the_episode_is_finished_and_comes_back_close(tmp_path, recorded):
    store = EpisodeStore(tmp_path / "s", pictures=PictureCodec("av1", 90))
    target = store.recorder(id="e", task="t") if recorded else EpisodeBuilder(id="e", task="t")
    target.start({KEY: large()[0], GEL: scene()[:8, :8]})
    for t in range(4):
        step = Step(action=[t], wall_time=1e9, monotonic_time=0.1 * t)
        target.append(step, {KEY: large()[t + 1], GEL: scene()[:8, :8]})
    made = target.finish("success")
    if not recorded:
        store.write(made)
    found = store.read("e").observations
    np.testing.assert_array_equal(found[GEL], np.stack([scene()[:8, :8]] * 5))  # too small for a video
    assert found[KEY].shape == (5, 67, 91, 3)
    for row, picture in zip(found[KEY].astype(int), large(), strict=True):
        assert np.abs(row - picture).mean() < 5
    with pytest.raises(StoreError, match="stored as a video"):
        store.pictures("e", KEY)
    assert zarr.open_group(store.path, mode="r")[f"{PATH}/bytes"][4:8].tobytes() == b"ftyp"
    file = store.path / PATH / "bytes/c.0"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedEpisodeError, match="Episode e"):
        store.read("e")


def graft(first, second, path):
    """A file that says it is like the first video, and goes on with the pictures of the second."""
    with av.open(str(path), "w", format="mp4") as target:
        stream = target.add_stream("libsvtav1", rate=30, width=92, height=68, pix_fmt="yuv420p")
        time = 0
        for file in (first, second):
            with av.open(str(file)) as source:
                for packet in source.demux(source.streams.video[0]):
                    if packet.dts is not None:
                        packet.stream, packet.pts, packet.dts = stream, time, time
                        target.mux(packet)
                        time += packet.duration


def test_a_video_of_another_size_or_length_is_refused(tmp_path):
    encode_av1(tmp_path / "v", large(), (67, 91, 3), 50)
    for shape, match in (
        ((4, 67, 91, 3), "says 5 pictures, 4 were written"),
        ((10**9, 67, 91, 3), "says 5 pictures, 1000000000 were written"),  # 18 TB, were they believed
        ((5, 40, 90, 3), "says 92x68"),
        ((5, 1 << 20, 1 << 20, 3), "not possible"),
    ):
        with pytest.raises(PictureError, match=match):
            decode_av1(tmp_path / "v", shape)
    encode_av1(tmp_path / "w", large(2).repeat(2, axis=1), (134, 91, 3), 50)
    graft(tmp_path / "v", tmp_path / "w", tmp_path / "both")
    with pytest.raises(PictureError, match=r"no whole video|says 92x134"):
        decode_av1(tmp_path / "both", (7, 67, 91, 3))
    (tmp_path / "v").write_bytes(b"no video")
    with pytest.raises(PictureError, match="no whole video"):
        decode_av1(tmp_path / "v", (5, 67, 91, 3))
