import contextlib
import sys

import h5py
import numpy as np
import pytest

from data.errors import DatasetError
from data.formats import hdf5_file as hdf5
from data.formats.limits import Budget
from data.formats.registry import detect, load, open_source
from tests.data.episodes import episode

SECRET = np.arange(12.0).reshape(4, 3) + 100


@pytest.fixture
def outside(tmp_path):
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file["secret"] = SECRET
        file["group/secret"] = SECRET
    SECRET.tofile(tmp_path / "outside.bin")
    return tmp_path


def read(path, name="actions", **limits):
    with hdf5.open_hdf5(path) as root:
        return hdf5.numbers(hdf5.child(root, name), Budget(limits.get("limit", 1 << 30), "here"))


def make(path, build):
    with h5py.File(path, "w") as file:
        file["observations"] = np.ones((4, 2))
        build(file)
    return path


def external_link(file):
    file["actions"] = h5py.ExternalLink("outside.h5", "/secret")


def soft_link(file):
    file["link"] = h5py.ExternalLink("outside.h5", "/")
    file["actions"] = h5py.SoftLink("/link/secret")


def external_storage(file):
    file.create_dataset("actions", (4, 3), "<f8", external=[("outside.bin", 0, SECRET.nbytes)])


def virtual(file):
    layout = h5py.VirtualLayout(shape=(4, 3), dtype="<f8")
    layout[:] = h5py.VirtualSource("outside.h5", "secret", shape=(4, 3))
    file.create_virtual_dataset("actions", layout)


def objects(file):
    file.create_dataset("actions", (4,), dtype=h5py.vlen_dtype(np.float64))[:] = [np.ones(2)] * 4


def references(file):
    file.create_dataset("actions", (4,), dtype=h5py.ref_dtype)[:] = file.ref


def records(file):
    file["actions"] = np.zeros(4, [("a", "<f4"), ("b", "<i8")])


def texts(file):
    file["actions"] = np.array([b"a", b"b", b"c", b"d"])


def opaque(file):
    file["actions"] = np.array([b"\x80\x03}q\x00."] * 4, dtype=np.dtype("V6"))


def half_written(file):
    file.create_dataset("actions", (4, 3), "<f8", chunks=(2, 3))[:2] = 1.0


def never_written(file):
    file.create_dataset("actions", (4, 3), "<f8")


def bomb(file):
    file.create_dataset("actions", (4, 1 << 40), "<f8", chunks=(1, 1 << 20), compression="gzip")


LINK = "is a link to .*it is not followed"
OTHER = "only plain numbers are read, never objects"
EVIL = [
    (external_link, LINK),
    (soft_link, LINK),
    (external_storage, "keeps its data in other files"),
    (virtual, "keeps its data in other files"),
    (objects, OTHER),
    (references, OTHER),
    (records, OTHER),
    (texts, OTHER),
    (opaque, OTHER),
    (half_written, "parts that were never written; HDF5 would read them as zeros"),
    (never_written, "parts that were never written"),
    (bomb, "parts that were never written|which passes the limit"),
]


@pytest.mark.parametrize(("build", "message"), EVIL, ids=lambda value: getattr(value, "__name__", ""))
def test_what_leads_outside_or_is_no_plain_array_is_refused(outside, build, message):
    path = make(outside / "a.hdf5", build)
    with pytest.raises(DatasetError, match=message):
        read(path)
    before = sorted(entry.name for entry in outside.iterdir())
    with pytest.raises(DatasetError, match=message):
        open_source(path, "d4rl")
    assert sorted(entry.name for entry in outside.iterdir()) == before


@pytest.mark.parametrize("link", [h5py.ExternalLink("outside.h5", "/group"), h5py.SoftLink("/elsewhere")])
def test_groups_behind_links_are_refused_by_every_format(outside, link):
    for name, group in (("robomimic", "data"), ("aloha", "observations")):
        path = outside / f"{name}.hdf5"
        with h5py.File(path, "w") as file:
            file["action"] = np.ones((4, 2))
            file[group] = link
        with pytest.raises(DatasetError, match=LINK):
            open_source(path, name)
        with pytest.raises(DatasetError, match="of no known format"):
            detect(path)


def test_a_big_compressed_array_is_paid_for_before_it_is_read(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("actions", data=np.zeros((1000, 100)), chunks=(100, 100), compression="gzip")
    assert path.stat().st_size < 20_000
    with pytest.raises(DatasetError, match=r"unfolds to 800000 bytes, which passes the limit of 10000 bytes"):
        read(path, limit=10_000)


def test_big_endian_numbers_come_out_right(tmp_path):
    values = np.array([[1.5, -2.25], [3e10, 7.0]])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("actions", data=values.astype(">f4"))
    found = read(tmp_path / "a.h5")
    assert found.dtype == np.dtype("float32")
    np.testing.assert_array_equal(found, values.astype(np.float32))


@pytest.mark.parametrize("name", ["a/b", "..", ".", "", "/actions"])
def test_names_that_are_paths_are_not_followed(tmp_path, name):
    path = make(tmp_path / "a.h5", lambda file: file.create_dataset("actions", data=np.ones((4, 3))))
    with hdf5.open_hdf5(path) as root, pytest.raises(DatasetError, match="no plain name"):
        hdf5.child(root, name)


def test_files_cut_short_at_any_length_are_refused(tmp_path):
    whole = tmp_path / "whole.hdf5"
    load("robomimic").write([episode("a", 6)], {}, None, whole)
    content = whole.read_bytes()
    for share in (0.0, 0.3, 0.7, 0.99):
        path = tmp_path / "cut.hdf5"
        path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(DatasetError, match=r"cut\.hdf5"):
            list(open_source(path, "robomimic").episodes)


def test_flipped_bytes_never_raise_anything_but_our_own_error(tmp_path):
    whole = tmp_path / "whole.hdf5"
    load("robomimic").write([episode("a", 3)], {}, None, whole)
    content = whole.read_bytes()
    for place in np.random.default_rng(1).integers(0, len(content), 40):
        broken = bytearray(content)
        broken[place] ^= 0xFF
        (tmp_path / "broken.hdf5").write_bytes(broken)
        with contextlib.suppress(ValueError):  # a DatasetError, or the episode's own check
            list(open_source(tmp_path / "broken.hdf5", "robomimic").episodes)


def test_a_block_before_the_signature_is_passed_over(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as file:
        file["observations"], file["actions"] = np.ones((4, 2)), np.ones((4, 3))
    assert detect(tmp_path / "a.h5") == "d4rl"


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    path = make(tmp_path / "a.h5", lambda file: file.create_dataset("actions", data=np.ones((4, 3))))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"robot-rl\[formats\]"):
        open_source(path, "d4rl")
    with pytest.raises(DatasetError, match="of no known format"):
        detect(path)


def test_lists_of_names_have_a_limit(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["names"] = np.array([b"demo_0", b"demo_1"])
        file.create_dataset("absurd", (10**9,), "S100", chunks=(1000,))
    with hdf5.open_hdf5(tmp_path / "a.h5") as root:
        assert hdf5.texts(root["names"]) == ["demo_0", "demo_1"]
        with pytest.raises(DatasetError, match="no list of names"):
            hdf5.texts(root["absurd"])
