import errno
import json

import numpy as np
import pytest

from data.replay import Prioritised, ReplayBuffer
from data.replay.batch import equal

from .test_buffer import everything, recording


def replay_of(folder=None, **options):
    return ReplayBuffer(**{"capacity": 17, "chunk": 2, "n_step": 2, "folder": folder} | options)


@pytest.fixture(params=["memory", "folder"])
def folder(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "replay"


def through_json(state):
    return {"facts": json.loads(json.dumps(state["facts"])), "arrays": state["arrays"]}


@pytest.mark.parametrize("episodes", [0, 1, 3, 9])
def test_a_replay_goes_on_exactly_where_its_state_was_taken(folder, episodes):
    replay, rng = replay_of(folder), np.random.default_rng(5)
    replay.extend([recording(i, 2 + i % 4) for i in range(1, 1 + episodes)])
    state = through_json(replay.state())
    again = replay_of(folder)
    again.load_state(state)
    assert again.episode_ids == replay.episode_ids
    if episodes:
        assert equal(again.sample(40, np.random.default_rng(5)), replay.sample(40, rng))
    del replay
    other = replay_of()
    other.extend([recording(i, 2 + i % 4) for i in range(1, 1 + episodes)])
    for one in (again, other):
        one.extend([recording(50, 6), recording(51, 3)])
    assert equal(everything(again), everything(other))


def test_a_state_does_not_change_with_the_replay():
    replay = replay_of()
    replay.extend([recording(1, 5)])
    state = replay.state()
    want = everything(replay)
    replay.extend([recording(i, 6) for i in range(2, 6)])
    again = replay_of()
    again.load_state(state)
    assert equal(everything(again), want)


def test_a_folder_holds_the_same_as_memory(tmp_path):
    made = [recording(i, 1 + i % 5) for i in range(1, 12)]
    mapped, plain = replay_of(tmp_path / "replay"), replay_of()
    assert mapped.extend(made) == plain.extend(made)
    assert equal(everything(mapped), everything(plain))
    files = list((tmp_path / "replay").iterdir())
    assert len(files) == 4  # action, two observations and the marks
    assert all(file.suffix == ".npy" for file in files)


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty; give a replay a folder of its own"):
        replay_of(tmp_path).extend([recording(1, 3)])


def test_a_full_disk_is_an_error_at_the_start_and_not_a_crash_later(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    replay = replay_of(tmp_path / "replay")
    monkeypatch.setattr("data.replay.storage.os.posix_fallocate", full)
    with pytest.raises(OSError, match=r"No space left on device\); free space") as caught:
        replay.extend([recording(1, 3)])
    assert caught.value.errno == errno.ENOSPC
    assert replay.forms == {}
    monkeypatch.undo()
    assert replay.extend([recording(1, 3)]) == 3  # once there is room, without a folder to clear


def test_a_folder_takes_its_space_at_once(tmp_path):
    replay_of(tmp_path / "replay", capacity=1000).extend([recording(1, 3)])
    for file in (tmp_path / "replay").iterdir():
        assert file.stat().st_blocks * 512 >= file.stat().st_size


def test_rows_that_were_overwritten_after_the_state_are_noticed(tmp_path):
    replay = replay_of(tmp_path / "replay")
    replay.extend([recording(1, 5)])
    early = replay.state()
    replay.extend([recording(2, 5)])
    replay_of(tmp_path / "replay").load_state(early)  # episode 1 is still whole
    replay.extend([recording(3, 8)])
    with pytest.raises(ValueError, match=r"Rows of episode 'e1' .* were overwritten"):
        replay_of(tmp_path / "replay").load_state(early)
    replay_of(tmp_path / "replay").load_state(replay.state())


def test_a_state_of_other_settings_or_with_a_lost_file_is_refused(tmp_path):
    replay = replay_of(tmp_path / "replay")
    replay.extend([recording(1, 5)])
    state = replay.state()
    with pytest.raises(ValueError, match="make it with the same settings"):
        replay_of(gamma=0.5).load_state(state)
    (tmp_path / "replay" / "ring-001.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"ring-001\.npy is missing, which held 'observation/"):
        replay_of(tmp_path / "replay").load_state(state)


def test_priorities_go_on_exactly_where_their_state_was_taken():
    replay = replay_of()
    sampler = Prioritised(replay)
    rng = np.random.default_rng(0)
    for index in range(1, 5):
        replay.extend([recording(index, 5)])
        batch = replay.sample(8, rng, sampler)
        sampler.update(batch.number, rng.random(8))
    saved, priorities = replay.state(), through_json(sampler.state())
    again = replay_of()
    again.load_state(saved)
    other = Prioritised(again)
    other.load_state(priorities)
    for one, its in ((replay, sampler), (again, other)):
        one.extend([recording(9, 4)])
        its.update(np.array([one.first]), np.array([3.0]))
    a = replay.sample(64, np.random.default_rng(1), sampler)
    b = again.sample(64, np.random.default_rng(1), other)
    assert equal(a, b)
