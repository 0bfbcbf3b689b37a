import numpy as np
import pytest

from data.errors import DamagedEpisodeError
from data.random_access import StoredChunks
from data.store import EpisodeStore
from data.windows import ChunkWindows, Trajectory
from tests.data.episodes import episode
from tests.data.labels.timelines import PERIOD, timeline
from tests.data.stores import stored

CAMERA = "observation.images.wrist"
KEYS = ["observation.state", "observation.wrench"]


@pytest.fixture
def store(tmp_path):
    return stored(tmp_path / "store", [episode("one", steps=13), episode("two", steps=7, seed=1)])


@pytest.mark.parametrize("memory_bytes", [0, 1000, 1 << 20])
@pytest.mark.parametrize("sources", [None, ["human"]])
def test_windows_are_those_that_are_cut_in_memory(store, memory_bytes, sources):
    options = {"observation_steps": 2, "horizon": 4}
    trajectories = [Trajectory.of(found, [*KEYS, CAMERA], sources=sources) for found in store]
    wanted = ChunkWindows(trajectories, **options)
    rows = np.random.default_rng(0).permutation(len(wanted)).tolist() * 2
    with StoredChunks(
        store, cameras=[CAMERA], keys=KEYS, sources=sources, memory_bytes=memory_bytes, **options
    ) as chunks:
        assert len(chunks) == len(wanted)
        found, want = chunks.batch(rows), wanted.batch(rows)
        assert sorted(found.observations) == sorted(want.observations)
        for key, values in want.observations.items():
            np.testing.assert_array_equal(found.observations[key], values)
        np.testing.assert_array_equal(found.actions, want.actions)
        np.testing.assert_array_equal(found.mask, want.mask)
        assert found.tasks == want.tasks


def test_memory_for_pictures_is_bounded_and_the_last_used_are_kept(store):
    size = 8 * 6 * 3
    with StoredChunks(store, cameras=[CAMERA], keys=KEYS, memory_bytes=3 * size) as chunks:
        chunks.batch([0, 1, 2, 0, 3])
        kept = chunks._pictures._kept
        assert [row for _, _, row in kept] == [2, 0, 3]
        assert sum(picture.nbytes for picture in kept.values()) <= 3 * size


def test_pictures_alone_need_no_other_observation(store):
    with StoredChunks(store, cameras=[CAMERA], keys=[], ids=["two"], horizon=2) as chunks:
        found = chunks.batch([3])
    assert list(found.observations) == [CAMERA]
    np.testing.assert_array_equal(
        found.observations[CAMERA][0, 0], episode("two", steps=7, seed=1).observations[CAMERA][3]
    )


def test_a_batch_is_a_copy(store):
    with StoredChunks(store, cameras=[CAMERA], keys=KEYS) as chunks:
        first = chunks.batch([0]).observations[CAMERA]
        before = first.copy()
        first[:] = 0
        np.testing.assert_array_equal(chunks.batch([0]).observations[CAMERA], before)


def test_a_changed_picture_names_its_episode(store):
    file = next((store.path / "two" / "observations" / CAMERA).rglob("c*"))
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)
    with StoredChunks(store, cameras=[CAMERA], keys=KEYS) as chunks:
        assert len(chunks.batch(range(13)).tasks) == 13
        with pytest.raises(
            DamagedEpisodeError, match=r"Episode two is damaged: observation.images.wrist, pict"
        ):
            chunks.batch([13])


def test_a_camera_that_is_not_there_is_named(store):
    cameras = ["observation.images.top"]
    with (
        StoredChunks(store, cameras=cameras, keys=KEYS) as chunks,
        pytest.raises(KeyError, match=r"observation\.images\.top"),
    ):
        chunks.batch([0])


def test_chunks_of_a_store_that_declares_its_rate_end_at_gaps(tmp_path):
    found = timeline("pppp", times=PERIOD * np.array([0, 1, 4, 5]))
    for name, spec, lengths in (("a", {"rate_hz": 1 / PERIOD}, [2, 1, 2, 1]), ("b", None, [2, 2, 2, 1])):
        made = EpisodeStore(tmp_path / name, action_spec=spec)
        made.write(found)
        with StoredChunks(made, horizon=2) as chunks:
            assert chunks.batch(range(4)).mask.sum(1).tolist() == lengths
