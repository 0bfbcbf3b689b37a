"""HDF5 files of others, opened so that nothing outside them is read and nothing missing reads as zeros.

HDF5 lets a file point into others (external links, external storage, virtual datasets) and reads parts that
were never written as zeros. Both are refused here, as are object arrays.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from data.errors import DatasetError
from data.formats.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from data.formats.limits import Budget

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_USER_BLOCKS = (0, 512, 1024, 2048)
NUMBERS = "biuf"
"""NumPy's letters of booleans, integers and floats."""


def is_hdf5(path: Path) -> bool:
    """Whether a file has HDF5's signature, at its begin or behind a block that somebody put before it."""
    try:
        with path.open("rb") as file:
            begin = file.read(_USER_BLOCKS[-1] + len(_SIGNATURE))
    except OSError:
        return False
    return any(begin[place:].startswith(_SIGNATURE) for place in _USER_BLOCKS)


def h5py_module() -> Any:  # noqa: ANN401 - h5py ships no types
    """The h5py package.

    Raises:
        ImportError: It is not installed; says how to.
    """
    return require("h5py", "formats", "Reading or writing HDF5")


def has_at_root(path: Path, *, groups: tuple[str, ...] = (), datasets: tuple[str, ...] = ()) -> bool:
    """Whether a file has these at its root, links not followed; False where it cannot be opened."""
    if not is_hdf5(path):
        return False
    try:
        with open_hdf5(path) as file:
            return all(is_group(child(file, name)) for name in groups) and all(
                is_dataset(child(file, name)) for name in datasets
            )
    except (DatasetError, ImportError):
        return False


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file for reading.

    Yields:
        The root group of h5py.

    Raises:
        DatasetError: It is missing, no HDF5 file, or cut short; also when h5py meets damage later on.
    """
    h5py = h5py_module()
    if not path.is_file():
        raise DatasetError(f"{path} is no file.")
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be opened as HDF5, it may be cut short or still be written: {error}. "
            "Copy it again from its source."
        ) from error
    with file:
        try:
            yield file
        except (OSError, RuntimeError) as error:
            raise DatasetError(f"{path} is damaged: {error}. Copy it again from its source.") from error


def child(group: Any, name: str) -> Any:  # noqa: ANN401 - an h5py group or dataset, or None
    """The group or dataset of that name, or None where there is none.

    Raises:
        DatasetError: The name is a path or a link, which could lead out of the file.
    """
    if name in {"", ".", ".."} or "/" in name:
        raise DatasetError(f"{_place(group, name)} is no plain name; it is not followed.")
    link = group.get(name, getlink=True)
    if link is None:
        return None
    if type(link).__name__ != "HardLink":
        target = getattr(link, "filename", ""), getattr(link, "path", "")
        raise DatasetError(
            f"{_place(group, name)} is a link to {':'.join(part for part in target if part)!r}, which could "
            "lie outside the file; it is not followed. Write the file anew with the data in it: "
            "h5copy -f ext,soft copies what links point to."
        )
    try:
        return group[name]
    except KeyError as error:
        raise DatasetError(f"{_place(group, name)} is damaged: {error}. Copy the file again.") from error


def children(group: Any) -> list[str]:  # noqa: ANN401 - an h5py group
    """Names in a group, sorted.

    Raises:
        DatasetError: It is no group, or a name is no text.
    """
    if not is_group(group):
        raise DatasetError(f"{_place(group)} is no group; the file is damaged. Copy it again.")
    names = list(group.keys())
    if not all(isinstance(name, str) for name in names):
        raise DatasetError(
            f"{_place(group)} holds a name that is no text; the file is damaged. Copy it again."
        )
    return sorted(names)


def is_group(node: Any) -> bool:  # noqa: ANN401 - an h5py group or dataset, or None
    """Whether this is a group (and not a dataset or nothing)."""
    return isinstance(node, h5py_module().Group)


def is_dataset(node: Any) -> bool:  # noqa: ANN401 - an h5py group or dataset, or None
    """Whether this is a dataset (and not a group or nothing)."""
    return isinstance(node, h5py_module().Dataset)


def is_per_step(node: Any, rows: int) -> bool:  # noqa: ANN401 - an h5py group or dataset, or None
    """Whether this is a dataset of plain numbers with one row per step."""
    return is_dataset(node) and (node.shape or ())[:1] == (rows,) and _kind(node) in NUMBERS


def numbers(
    dataset: Any,  # noqa: ANN401 - h5py
    budget: Budget,
    rows: slice | None = None,
    *,
    kinds: str = NUMBERS,
) -> NDArray[Any]:
    """Rows of a dataset of plain numbers, in native byte order.

    Args:
        dataset: From `child`.
        budget: Pays for the decoded bytes.
        rows: Which of the first axis; all of the dataset when None.
        kinds: NumPy's letters of the types that are read.

    Raises:
        DatasetError: It holds no plain numbers, lies in other files, has parts that were never written, or
            passes the budget.
    """
    check_dataset(dataset, kinds)
    shape = tuple(dataset.shape)
    if rows is not None:
        shape = (len(range(*rows.indices(shape[0]))), *shape[1:]) if shape else shape
    budget.spend_array(shape, dataset.dtype, f"dataset {dataset.name}")
    values = np.asarray(dataset[()] if rows is None else dataset[rows])
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def check_dataset(dataset: Any, kinds: str = NUMBERS) -> None:  # noqa: ANN401 - h5py
    """Refuse what `numbers` cannot read honestly.

    Raises:
        DatasetError: See there.
    """
    if not is_dataset(dataset) or dataset.shape is None:
        raise DatasetError(f"{_place(dataset)} is no dataset with a shape.")
    if _kind(dataset) not in kinds:
        raise DatasetError(
            f"{_place(dataset)} holds {dataset.dtype}; only plain numbers are read, never objects or records."
        )
    if dataset.is_virtual or dataset.external:
        raise DatasetError(
            f"{_place(dataset)} keeps its data in other files, which are not opened. Copy the data into one "
            "file first (h5repack)."
        )
    _refuse_unwritten(dataset)


def texts(dataset: Any, limit: int = 1_000_000) -> list[str]:  # noqa: ANN401 - h5py
    """A list of names, such as a split.

    Raises:
        DatasetError: It is no list of texts, or an absurdly long one.
    """
    h5py = h5py_module()
    kind = dataset.dtype.kind if is_dataset(dataset) else ""
    variable = kind == "O" and h5py.check_string_dtype(dataset.dtype) is not None
    if not (kind == "S" or variable) or len(dataset.shape) != 1 or dataset.nbytes > limit:
        raise DatasetError(f"{_place(dataset)} is no list of names with at most {limit} bytes.")
    return [
        value.decode("utf-8", "strict") if isinstance(value, bytes) else str(value) for value in dataset[()]
    ]


def text_attribute(node: Any, name: str) -> str | None:  # noqa: ANN401 - h5py
    """An attribute that is one text; None where there is none.

    Raises:
        DatasetError: It is something else.
    """
    if name not in node.attrs:
        return None
    value = node.attrs[name]
    if isinstance(value, bytes):
        value = value.decode()
    if not isinstance(value, str):
        raise DatasetError(
            f"{_place(node)} has attribute {name!r} of type {type(value).__name__}; text is needed."
        )
    return value


def _kind(dataset: Any) -> str:  # noqa: ANN401 - h5py
    try:
        return str(dataset.dtype.kind)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{_place(dataset)} is of a type that NumPy does not have: {error}.") from error


def _refuse_unwritten(dataset: Any) -> None:  # noqa: ANN401 - h5py
    size = math.prod(dataset.shape)
    if size == 0:
        return
    if dataset.chunks is None:
        missing = dataset.id.get_storage_size() == 0
    else:
        wanted = math.prod(-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
        missing = dataset.id.get_num_chunks() < wanted
    if missing:
        raise DatasetError(
            f"{_place(dataset)} has parts that were never written; HDF5 would read them as zeros. The "
            "recording was cut short: take the episode out, or record it again."
        )


def _place(node: Any, name: str = "") -> str:  # noqa: ANN401 - h5py
    try:
        return f"{node.file.filename}: {node.name.rstrip('/')}{'/' + name if name else ''}"
    except (AttributeError, RuntimeError, ValueError):
        return f"{node!r}{'/' + name if name else ''}"
