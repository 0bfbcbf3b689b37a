"""Stores made to do harm: checksums are right, what they say is not."""

import json
import os

import numpy as np
import pytest

from data.episode_folder import GROUP_FILE, check_pictures, digest_of
from data.errors import DamagedEpisodeError, StoreError
from data.features import Feature, from_array
from data.images import PictureCodec
from data.manifest import sha256_bytes
from data.packing import pack
from data.receipts import content_hash
from data.records import EpisodeBuilder, Step, equal
from data.store import EpisodeStore
from data.zarr_files import group_attributes, group_bytes
from tests.data.episodes import episode, fill
from tests.data.stores import stored

KEY = "observations/observation.images.wrist"


@pytest.fixture
def store(tmp_path):
    made = stored(tmp_path / "s", [episode("bad"), episode("good")])
    yield made
    assert len(made.read("good")) == 13


def rewrite(store, path=None, content=None, change=lambda facts: None):
    """Change a file and the attributes of an episode, with checksums that fit."""
    folder = store.path / "bad"
    facts = group_attributes((folder / GROUP_FILE).read_bytes())
    del facts["sha256"]
    if path is not None:
        (folder / path).write_bytes(content)
        facts["files"][path] = [len(content), sha256_bytes(content)]
    change(facts)
    (folder / GROUP_FILE).write_bytes(group_bytes({**facts, "sha256": digest_of(facts)}))


def with_shape(store, array, shape, chunk):
    file = store.path / "bad" / array / GROUP_FILE
    meta = json.loads(file.read_bytes())
    meta["shape"], meta["chunk_grid"]["configuration"]["chunk_shape"] = shape, chunk
    return f"{array}/{GROUP_FILE}", json.dumps(meta).encode()


SHAPES = [
    ([10**15, 4, 3], [1, 4, 3]),
    ([10**15, 4, 3], [10**15, 4, 3]),
    ([10**30, 0, 3], [1, 1, 3]),
    ([13, 4, 10**12], [13, 4, 10**12]),
    ([12, 4, 3], [12, 4, 3]),
    ([13, 12], [13, 12]),
]


@pytest.mark.parametrize(("shape", "chunk"), SHAPES)
def test_absurd_shapes_are_refused_before_memory_is_taken(store, shape, chunk):
    rewrite(store, *with_shape(store, "steps/actions", shape, chunk))
    with pytest.raises(DamagedEpisodeError, match="Episode bad"):
        store.read("bad")


def test_a_number_of_steps_that_the_arrays_do_not_have_is_refused(store):
    rewrite(store, change=lambda facts: facts.update(steps=14))
    for pictures in (True, False):
        with pytest.raises(DamagedEpisodeError, match=r"Episode bad .*says 14 steps, its arrays hold 13"):
            store.read("bad", pictures=pictures)
    assert list(store.damages()) == ["bad"]


def test_a_packed_array_that_would_unpack_to_more_than_it_says_is_refused(tmp_path):
    store = EpisodeStore(tmp_path / "s")
    builder = EpisodeBuilder(id="bad", task="t")
    mask = np.ones((20, 30), np.uint8)
    builder.start({"observation.mask": mask})
    builder.append(Step(action=[0], wall_time=0.0, monotonic_time=0.0), {"observation.mask": mask})
    store.write(builder.finish())
    rewrite(store, "observations/observation.mask/c.0.0.0", pack(np.zeros(1 << 28, np.uint8)))
    with pytest.raises(DamagedEpisodeError, match="268435456 bytes are packed in it, 1200 are needed"):
        store.read("bad")


CHANGES = {
    "outside": lambda facts: facts["files"].update({"../good/zarr.json": [1, "x"]}),
    "absolute": lambda facts: facts["files"].update({"/etc/hostname": [1, "x"]}),
    "pictures outside": lambda facts: facts["pictures"].update({f"../good/{KEY}": facts["pictures"][KEY]}),
    "many pictures": lambda facts: facts["pictures"][KEY].update(shape=[10**12, 8, 6, 3]),
    "large pictures": lambda facts: facts["pictures"][KEY].update(shape=[14, 1 << 20, 1 << 20, 3]),
    "no pictures": lambda facts: facts["pictures"][KEY].update(shape=[]),
    "codec": lambda facts: facts["pictures"][KEY].update(codec={"kind": "pickle"}),
    "no files": lambda facts: facts.update(files=[]),
    "no id": lambda facts: facts.update(id="../../evil"),
    "version": lambda facts: facts.update(version="one"),
    "events": lambda facts: facts.update(events=[{"kind": "note"}]),
    "outcome": lambda facts: facts.update(outcome=3),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_attributes_that_lie_are_refused(store, change, request):
    rewrite(store, change=change)
    if request.node.callspec.id == "version":
        return  # nobody relies on it
    with pytest.raises(StoreError, match=r"[Ee]pisode bad"):
        store.read("bad")


def journal(store, change):
    recorder = store.recorder(id="torn", task="t")
    fill(recorder, 20, np.random.default_rng(0))
    recorder.close()
    file = store.path / ".recording/torn/journal.jsonl"
    facts, entry = (json.loads(line.partition("\t")[0]) for line in file.read_text().splitlines())
    change(entry)
    file.write_text(json.dumps(facts) + "\n" + json.dumps(entry) + "\n")


@pytest.mark.parametrize("way", ["name", "link"])
def test_a_recording_whose_picture_file_lies_elsewhere_is_not_finished_into_that_file(store, tmp_path, way):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious" * 1000)

    def change(entry):
        (known,) = entry["pictures"].values()
        if way == "name":
            known["file"] = "../../../victim"
            entry["sizes"] = {"../../../victim": 8000}
        else:
            place = store.path / ".recording/torn" / known["file"]
            place.unlink()
            place.symlink_to(victim)

    journal(store, change)
    assert store.partials()[0].steps == 0
    with pytest.raises(StoreError, match="holds no whole step"):
        store.recover("torn")
    assert victim.read_bytes() == b"precious" * 1000


def test_a_video_that_says_it_is_huge_is_refused_before_memory_is_taken(store):
    def change(facts):
        facts["pictures"][KEY].update(shape=[10**12, 64, 64, 3], codec={"kind": "av1", "quality": 50})

    rewrite(store, change=change)
    with pytest.raises(StoreError, match=r"episode bad take .* GB when unpacked"):
        check_pictures(store.path / "bad")


PICTURES = f"{KEY}/c.0.0.0.0"


def swap(a, b):
    a.rename(a.parent / "other")
    b.rename(a)
    (a.parent / "other").rename(b)


def test_episodes_whose_folders_were_swapped_are_not_taken_for_each_other(tmp_path):
    store = stored(tmp_path / "s", [episode("a", seed=0), episode("b", seed=1)])
    swap(store.path / "a", store.path / "b")
    for look in (store.read, store.summary, lambda id_: store.pictures(id_, "observation.images.wrist")):
        with pytest.raises(DamagedEpisodeError, match=r"Episode a is damaged: .* that of episode 'b'"):
            look("a")
    assert store.damages().keys() == {"a", "b"}


@pytest.mark.parametrize("codec", ["lossless", "jpeg"])
def test_pictures_of_another_episode_are_not_taken_for_its_own(tmp_path, codec):
    store = stored(tmp_path / "s", [episode("a", seed=0), episode("b", seed=1)], pictures=PictureCodec(codec))
    name = PICTURES if codec == "lossless" else f"{KEY}/bytes/c.0"
    swap(*(store.path / id_ / name for id_ in "ab"))
    assert store.damages().keys() == {"a", "b"}
    with pytest.raises(DamagedEpisodeError, match="Episode a is damaged"):
        store.read("a")


def test_lossless_pictures_of_an_earlier_release_have_no_checksums_in_the_attributes(store):
    before = store.read("bad")
    rewrite(store, change=lambda facts: facts["pictures"][KEY].pop("crc32c"))
    assert equal(store.read("bad"), before)


@pytest.mark.parametrize("name", ["zarr.json", "steps/actions/c.0.0.0", PICTURES])
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_what_is_no_file_is_never_read_from(store, name, kind):
    place = store.path / "bad" / name
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "endless":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()
    listed = name.startswith("steps")  # by a checksum, which stands for it
    for look in (store.read, *(() if listed else (lambda id_: content_hash(store, id_),))):
        with pytest.raises(DamagedEpisodeError, match=f"Episode bad is damaged: {name} is no plain file"):
            look("bad")
    assert list(store.damages()) == ["bad"]


def test_a_byte_that_flipped_in_what_the_store_declares_is_found(tmp_path):
    features = {key: from_array(rows[0]) for key, rows in episode().observations.items()}
    features["observation.state"] = Feature((5,), "float32", "rad", tuple("abcde"))
    store = stored(tmp_path / "s", [episode()], features=features)
    file = store.path / GROUP_FILE
    content = file.read_bytes()
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            assert EpisodeStore(store.path).features == features, place
        except StoreError as error:
            assert str(store.path) in str(error)  # noqa: PT017 - either is right
    file.write_bytes(content)


def test_every_byte_that_flips_in_a_small_episode_is_found_or_changes_nothing(tmp_path):
    store = stored(tmp_path / "s", [episode(steps=1), episode("good")])
    before = store.read("one")
    for file in sorted(path for path in (store.path / "one").rglob("*") if path.is_file()):
        content = file.read_bytes()
        for place in range(0, len(content), 7):
            file.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
            try:
                assert equal(store.read("one"), before), (file, place)
            except StoreError as error:
                assert "pisode one" in str(error)  # noqa: PT017 - either is right
        file.write_bytes(content)
    assert equal(store.read("one"), before)
