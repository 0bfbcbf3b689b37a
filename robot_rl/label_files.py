"""Labels of whole data sets: counted, and one ``.npz`` per episode when asked for."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from data.formats.target import new_target
from data.labels import count, label
from data.manifest import atomic_write_json
from data.records import Episode

_VALUES = ("classes", "advantage", "gate")
_FORM = (
    'give JSON such as {"a-1": {"classes": [...]}} or .npz with arrays such as a-1/classes; one value per '
    "step, of classes, advantage or gate"
)


def label_all(
    episodes: Iterable[Episode],
    rule: str,
    out: Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    values: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,  # noqa: ANN401 - of data.labels.label
) -> tuple[Counter[str], list[str]]:
    """Label every episode for one method.

    Args:
        episodes: The recorded facts.
        rule: Name of the method.
        out: Folder for ``<id>.npz``, columns as in `data.labels.Labels`, and ``labels.json``; must not
            exist. Nothing is written when None.
        columns: Diagnostic of the episodes for each option that takes one value per step (``advantage``,
            ``gate``).
        values: Further values per step by episode id and option: see `read_values`.
        progress: Called with the id of each episode.
        **options: Further options of `data.labels.label`.

    Returns:
        how many steps carry which label, and what was left out.

    Raises:
        ValueError: if an episode lacks a diagnostic, or the method needs something that is not given.
        FileExistsError: if there is something at ``out``.
    """
    total: Counter[str] = Counter()
    notes: list[str] = []
    ids: list[str] = []
    with nullcontext() if out is None else new_target(out) as folder:
        if folder is not None:
            folder.mkdir()
        for episode in episodes:
            given = {name: _column(episode, key) for name, key in (columns or {}).items()}
            if values is not None:
                given |= _values(values, episode)
            made = label(episode, rule, **given, **options)
            total += count([made])
            notes += [f"{episode.id}: {note}" for note in made.notes]
            ids.append(episode.id)
            if folder is not None:
                np.savez_compressed(folder / f"{episode.id}.npz", **made.columns())  # type: ignore[arg-type]  # numpy's stubs take the names for allow_pickle
            progress(episode.id)
        if folder is not None:
            content = {"rule": rule, "episodes": ids, "counts": dict(total), "notes": notes}
            atomic_write_json(folder / "labels.json", content)
    return total, notes


def read_values(path: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """Values of a method's critic, one per step, by episode id and by option of `data.labels.label`.

    Args:
        path: JSON, ``{"a-1": {"classes": ["progress", ...]}, ...}``, or ``.npz`` with arrays such as
            ``a-1/classes``.

    Raises:
        ValueError: if it is neither, or names another option than classes, advantage and gate.
        FileNotFoundError: if there is no such file.
    """
    found: dict[str, dict[str, NDArray[Any]]] = {}
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                for key in arrays:
                    id_, _, name = key.rpartition("/")
                    found.setdefault(id_, {})[name] = arrays[key]
        else:
            content = json.loads(path.read_text("utf-8"))
            found = {id_: {k: np.asarray(v) for k, v in given.items()} for id_, given in content.items()}
    except (ValueError, AttributeError, BadZipFile, EOFError) as error:
        raise ValueError(f"{path} cannot be read ({error}): {_FORM}") from error
    unknown = sorted({name for given in found.values() for name in given} - set(_VALUES))
    if unknown or "" in found:
        raise ValueError(f"{path} holds {unknown or 'arrays without an episode'}: {_FORM}")
    return found


def _values(values: Mapping[str, Mapping[str, Any]], episode: Episode) -> Mapping[str, Any]:
    if episode.id not in values:
        named = ", ".join(list(values)[:5]) or "none"
        raise ValueError(f"The values have no episode {episode.id!r}, only {named}: give values for each.")
    return values[episode.id]


def _column(episode: Episode, key: str) -> Any:  # noqa: ANN401 - an array (T,)
    if key not in episode.extra:
        raise ValueError(f"Episode {episode.id} has no diagnostic {key!r}; it has {sorted(episode.extra)}.")
    return episode.extra[key]
