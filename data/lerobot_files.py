"""Opens the files of a LeRobotDataset folder, none of which is trusted before it was looked at."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_FIELD = re.compile(r"\{(\w+)(?::0?(\d+)d)?\}")
_MOST_TEXT_BYTES = 256 << 20
_TABLE_BYTES = 256 << 20
_TABLE_RATIO = 300


def read_table(path: Path, place: str, columns: Iterable[str] | None = None, **options: Any) -> pa.Table:  # noqa: ANN401 - pyarrow's
    """Read a Parquet file of a dataset.

    Args:
        path: The dataset.
        place: The file in it.
        columns: Which columns; those that are there of them. All when None.
        **options: Of `pyarrow.parquet.read_table`.

    Raises:
        DatasetError: The file is missing, broken, or holds absurdly many rows for its size.
    """
    file = path / place
    if not file.is_file():
        raise DatasetError(f"{path} has no {place}. Copy it from the source of the dataset.")
    try:
        with pq.ParquetFile(file) as opened:
            schema, rows = opened.schema_arrow, opened.metadata.num_rows
        names = [name for name in schema.names if columns is None or name in set(columns)]
        # Repeated values shrink to nothing, so few bytes can stand for more rows than fit in memory.
        if rows * 8 * max(1, len(names)) > max(_TABLE_BYTES, _TABLE_RATIO * file.stat().st_size):
            raise DatasetError(
                f"{place} in {path} announces {rows} rows in {file.stat().st_size} bytes; it is not read."
            )
        return pq.read_table(file, columns=names, page_checksum_verification=True, **options)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{place} in {path} cannot be read, it may be cut short: {error}") from error


def fill_template(path: Path, template: object, values: Mapping[str, int | str]) -> str:
    """Path of a file from a template such as ``"data/chunk-{chunk_index:03d}.parquet"``.

    Raises:
        DatasetError: It names an unknown value, or leads outside the dataset.
    """

    def fill(match: re.Match[str]) -> str:
        value = values.get(match[1])
        if value is None or len(match[2] or "") > 2:
            raise DatasetError(f"{path}: path template {template!r} names {match[0]!r}, which is unknown.")
        return str(value).zfill(int(match[2] or 0)) if isinstance(value, int) else value

    place = _FIELD.sub(fill, str(template))
    if "\0" in place:
        raise DatasetError(f"{path}: path template {template!r} holds a zero byte; it is not read.")
    target = Path(os.path.realpath(path / place))  # a loop of links is none that leads anywhere
    # The hub's cache keeps a dataset's files as links to a folder beside its revisions.
    allowed = (path.resolve(), path.resolve().parent.parent / "blobs")
    if ".." in Path(place).parts or not any(target.is_relative_to(root) for root in allowed):
        raise DatasetError(f"{path}: {place!r} lies outside the dataset; it is not read.")
    return place


def read_text(path: Path, place: str) -> str:
    """Content of a text file of a dataset.

    Raises:
        DatasetError: It is absurdly long, no UTF-8, or cannot be read.
    """
    file = path / place
    if file.stat().st_size > _MOST_TEXT_BYTES:
        raise DatasetError(f"{place} in {path} has {file.stat().st_size} bytes; it is not read.")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{place} in {path} cannot be read: {error}.") from error


def json_object(path: Path, place: str, text: str) -> dict[str, Any]:
    """The JSON object that a text holds; `place` is where it is from.

    Raises:
        DatasetError: It is no JSON, or something other than an object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{place} in {path} cannot be read: {error!r}.") from error
    if not isinstance(value, dict):
        raise DatasetError(f"{place} in {path} cannot be read: it holds {type(value).__name__}, no object.")
    return value


def json_lines(path: Path, place: str, why: str) -> Iterator[dict[str, Any]]:
    """Objects of a file with one on each line; `why` says what it is needed for.

    Raises:
        DatasetError: It is missing or broken.
    """
    if not (path / place).is_file():
        raise DatasetError(f"{path} has no {place}; {why}. Copy it from the source of the dataset.")
    for line in read_text(path, place).splitlines():
        if line.strip():
            yield json_object(path, place, line)


def column_names(path: Path, place: str) -> list[str]:
    """Names of the columns of a Parquet file.

    Raises:
        DatasetError: It is broken.
    """
    try:
        return list(pq.read_schema(path / place).names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{place} in {path} cannot be read, it may be cut short: {error}") from error
