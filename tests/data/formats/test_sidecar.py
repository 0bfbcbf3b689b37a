import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import DatasetError
from data.formats import sidecar
from data.formats.sidecar import Sidecar, SidecarWriter

ARRAYS = {
    "steps/actions": np.arange(24.0).reshape(2, 3, 4),
    "observations/picture": np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3),
    "extra/flag": np.array([True, False]),
    "nothing": np.zeros((0, 3), np.float32),
    "nan": np.array([np.nan, -np.inf]),
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "side.parquet"
    with SidecarWriter(path, {"features": {"a": 1}}) as writer:
        writer.add(4, {"id": "one", "seed": None}, ARRAYS)
        writer.add(7, {"id": "two"}, {})
    return path


def rewrite(file, change):
    """Change rows and give them a checksum that fits, as somebody with bad intentions would."""
    table = pq.read_table(file)
    found = table.to_pylist()
    for row in found:
        change(row)
        row["sha256"] = sidecar._digest(row)
    file.unlink()
    with pq.ParquetWriter(file, table.schema) as writer:
        for row in found:
            writer.write_table(pa.Table.from_pylist([row], schema=table.schema))


def test_facts_and_arrays_come_back_to_the_bit(file):
    found = Sidecar(file)
    assert found.numbers == {4, 7}
    assert found.header["features"] == {"a": 1}
    facts, arrays = found.read(4)
    assert facts == {"id": "one", "seed": None}
    assert list(arrays) == list(ARRAYS)
    for path, value in ARRAYS.items():
        assert arrays[path].dtype == value.dtype
        np.testing.assert_array_equal(arrays[path], value)
    assert found.read(7) == ({"id": "two"}, {})
    with pytest.raises(DatasetError, match="no episode 5"):
        found.read(5)


def test_big_endian_arrays_are_kept_by_value(tmp_path):
    with SidecarWriter(tmp_path / "side", {}) as writer:
        writer.add(0, {}, {"a": np.array([1.5, 2.5], ">f8")})
    np.testing.assert_array_equal(Sidecar(tmp_path / "side").read(0)[1]["a"], [1.5, 2.5])


def test_a_change_is_noticed(file):
    table = pq.read_table(file)
    texts = pa.array(['{"id": "another"}', '{"id": "two"}'], pa.large_string())
    with pq.ParquetWriter(file, table.schema) as writer:
        for row in (0, 1):
            writer.write_table(table.set_column(1, "facts", texts).slice(row, 1))
    with pytest.raises(DatasetError, match=r"Episode 4 in .* was changed.*sidecar='ignore'"):
        Sidecar(file).read(4)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda row: row["types"].__setitem__(0, "object"), "type 'object'"),
        (lambda row: row["types"].__setitem__(0, "O"), "type 'O'"),
        (lambda row: row["types"].__setitem__(0, "i4,(1000000000,)f8"), "cannot be read"),
        (lambda row: row["shapes"].__setitem__(0, [1 << 40, 1 << 40]), "an array of shape"),
        (lambda row: row["shapes"].__setitem__(0, [-2, -3, 4]), "an array of shape"),
        (lambda row: row["paths"].append("more"), "cannot be read"),
        (lambda row: row.__setitem__("facts", "not json"), "cannot be read"),
    ],
)
def test_impossible_arrays_are_refused_though_the_checksum_fits(file, change, match):
    rewrite(file, lambda row: change(row) if row["episode"] == 4 else None)
    with pytest.raises(DatasetError, match=match):
        Sidecar(file).read(4)


def test_files_that_are_no_sidecar_are_refused(file, tmp_path):
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DatasetError, match="cannot be read"):
        Sidecar(file)
    pq.write_table(pa.table({"episode": [0]}), tmp_path / "other")
    with pytest.raises(DatasetError, match="cannot be read"):
        Sidecar(tmp_path / "other")
    with SidecarWriter(tmp_path / "twice", {}) as writer:
        writer.add(0, {}, {})
        writer.add(0, {}, {})
    with pytest.raises(DatasetError, match="one row group for each episode"):
        Sidecar(tmp_path / "twice")


def test_a_newer_version_asks_for_an_update(tmp_path, monkeypatch):
    monkeypatch.setattr(sidecar, "_VERSION", 2)
    with SidecarWriter(tmp_path / "side", {}):
        pass
    monkeypatch.undo()
    with pytest.raises(DatasetError, match="version 2; this release reads 1"):
        Sidecar(tmp_path / "side")


def test_the_checksum_covers_what_is_read():
    row = {
        "episode": 0,
        "facts": "{}",
        "paths": ["a"],
        "types": ["int8"],
        "shapes": [[1]],
        "contents": [b"x"],
    }
    seen = {
        sidecar._digest(row | change) for change in ({}, {"episode": 1}, {"facts": "[]"}, {"paths": ["b"]})
    }
    seen |= {sidecar._digest(row | change) for change in ({"types": ["uint8"]}, {"contents": [b"y"]})}
    assert len(seen) == 6
    assert all(len(digest) == len(hashlib.sha256().hexdigest()) for digest in seen)
