import cv2
import h5py
import numpy as np
import pytest

from data.errors import DatasetError
from data.formats.registry import detect, open_source

STEPS = 5


def gradient(seed, height=16, width=24):
    """A smooth picture with red, green and blue far apart, so that JPEG keeps it and a swap shows."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([200 + x, 90 + 3 * y, np.full_like(x, 10 + 8 * seed)], -1).clip(0, 255).astype(np.uint8)


def encode(pictures, bgr=False):
    found = []
    for picture in pictures:
        ok, content = cv2.imencode(
            ".jpg", picture if bgr else picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95]
        )
        assert ok
        found.append(content.ravel())
    return found


def write(path, *, cameras=("high", "low"), compress=False, bgr=False, steps=STEPS, order=None, extra=None):
    rng = np.random.default_rng(steps)
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = True
        file.attrs["compress"] = compress
        file["action"] = rng.normal(size=(steps, 14)).astype(np.float32)
        file["observations/qpos"] = rng.normal(size=(steps, 14))
        file["observations/qvel"] = rng.normal(size=(steps, 14)) + 100
        lengths = {}
        for number, camera in enumerate(cameras):
            pictures = [gradient(number * steps + t, width=24 + 8 * number) for t in range(steps)]
            if not compress:
                file[f"observations/images/{camera}"] = np.stack(pictures)
                continue
            contents = encode(pictures, bgr)
            lengths[camera] = [len(content) for content in contents]
            longest = max(lengths[camera])
            padded = [np.pad(content, (0, longest - len(content))) for content in contents]
            file[f"observations/images/{camera}"] = np.stack(padded)
        if compress:
            file["compress_len"] = np.array([lengths[c] for c in order or cameras], np.float32)
        for name, value in (extra or {}).items():
            file[name] = value
    return path


def test_raw_pictures_and_joints_come_in_their_order(tmp_path):
    path = write(tmp_path / "episode_0.hdf5", extra={"base_action": np.arange(10.0).reshape(5, 2)})
    assert detect(path) == "aloha"
    source = open_source(path, task="open the jar")
    (episode,) = source.episodes
    with h5py.File(path) as file:
        np.testing.assert_array_equal(episode.action, file["action"][:].astype(float))
        np.testing.assert_array_equal(
            episode.observations["observation.state"][:-1], file["observations/qpos"]
        )
        np.testing.assert_array_equal(
            episode.observations["observation.velocity"][:-1], file["observations/qvel"]
        )
    np.testing.assert_array_equal(episode.observations["observation.images.low"][3], gradient(8, width=32))
    np.testing.assert_array_equal(
        episode.observations["observation.images.low"][-1], episode.observations["observation.images.low"][-2]
    )
    assert episode.extra["base_action"][4].tolist() == [8.0, 9.0]
    assert (episode.id, episode.task) == ("episode_0", "open the jar")
    assert episode.metadata["simulated"] is True
    assert source.features["observation.state"].names[6:8] == ("left_gripper", "right_waist")
    assert source.features["observation.state"].mode == "absolute"
    assert source.features["observation.images.high"].shape == (16, 24, 3)
    assert any("absolute joint targets" in note for note in source.notes)


@pytest.mark.parametrize("order", [("high", "low"), ("low", "high")])
def test_padded_jpeg_files_are_decoded_whatever_the_order_of_their_lengths(tmp_path, order):
    path = write(tmp_path / "e.hdf5", compress=True, order=order)
    source = open_source(path)
    (episode,) = source.episodes
    assert source.features["observation.images.low"].shape == (16, 32, 3)
    for number, camera in enumerate(("high", "low")):
        seen = episode.observations[f"observation.images.{camera}"]
        for t in range(STEPS):
            wanted = gradient(number * STEPS + t, width=24 + 8 * number)
            assert np.abs(seen[t].astype(int) - wanted).max() < 12


def test_jpeg_files_that_hold_bgr_are_read_as_rgb_when_told_so(tmp_path):
    path = write(tmp_path / "e.hdf5", compress=True, bgr=True)
    (plain,) = open_source(path).episodes
    (told,) = open_source(path, jpeg_channels="bgr").episodes
    key = "observation.images.high"
    assert np.abs(told.observations[key][2].astype(int) - gradient(2)).max() < 12
    np.testing.assert_array_equal(plain.observations[key][..., ::-1], told.observations[key])


def test_jpeg_files_kept_as_texts_are_decoded(tmp_path):
    path = write(tmp_path / "e.hdf5")
    with h5py.File(path, "a") as file:
        contents = [bytes(content) for content in encode([gradient(t) for t in range(STEPS)])]
        del file["observations/images/high"]
        file["observations/images/high"] = np.array(contents, dtype="S")
    (episode,) = open_source(path).episodes
    for t in range(STEPS):
        seen = episode.observations["observation.images.high"][t].astype(int)
        assert np.abs(seen - gradient(t)).max() < 12


def test_lengths_that_fit_no_picture_are_refused(tmp_path):
    path = write(tmp_path / "e.hdf5", compress=True)
    with h5py.File(path, "a") as file:
        file["compress_len"][1, 2] += 1
    with pytest.raises(DatasetError, match=r"no row with the lengths of the pictures of \['.*low'\]"):
        open_source(path)


def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path):
    for number in (10, 9, 1):
        write(tmp_path / f"episode_{number}.hdf5", steps=number, cameras=())
    source = open_source(tmp_path, rate_hz=50.0)
    assert source.count == 3
    episodes = list(source.episodes)
    assert [(e.id, len(e)) for e in episodes] == [("episode_1", 1), ("episode_9", 9), ("episode_10", 10)]
    assert episodes[1].monotonic_time[2] == 0.04


def test_a_file_of_any_name_gets_an_id_that_can_name_a_folder(tmp_path):
    path = write(tmp_path / "_.grasp 7 (ok).hdf5", cameras=())
    assert next(open_source(path).episodes).id == "grasp_7__ok_"


def test_files_of_another_kind_in_the_folder_are_refused(tmp_path):
    write(tmp_path / "episode_0.hdf5")
    write(tmp_path / "episode_1.hdf5", cameras=("high",))
    with pytest.raises(DatasetError, match=r"episode_1.hdf5 has .* Read files of one kind at a time"):
        list(open_source(tmp_path).episodes)


def test_a_picture_that_claims_to_be_huge_is_not_decoded(tmp_path):
    path = write(tmp_path / "e.hdf5", compress=True)
    with h5py.File(path, "a") as file:
        rows = file["observations/images/high"]
        row = rows[2]
        place = bytes(row).index(b"\xff\xc0")
        row[place + 5 : place + 9] = 255
        rows[2] = row
    with pytest.raises(DatasetError, match=r"picture 2 of .*high, 65535 x 65535 pixels, unfolds to"):
        list(open_source(path).episodes)


def test_a_broken_picture_is_named(tmp_path):
    path = write(tmp_path / "e.hdf5", compress=True)
    with h5py.File(path, "a") as file:
        file["observations/images/low"][3, :2] = 7
    with pytest.raises(DatasetError, match=r"picture 3 of .*low: .* no whole JPEG or PNG"):
        list(open_source(path).episodes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("observations/qpos", np.zeros((4, 14))),
        ("observations/images/high", np.zeros((5, 3, 16, 24), np.uint8)),
        ("observations/images/high", np.zeros((5, 16, 24, 3), np.float32)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, name, value):
    path = write(tmp_path / "e.hdf5")
    with h5py.File(path, "a") as file:
        del file[name]
        file[name] = value
    with pytest.raises(DatasetError, match=f"/{name} is .* are needed"):
        open_source(path, "aloha")
