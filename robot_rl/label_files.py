"""Labels of whole data sets: counted, and one ``.npz`` per episode when asked for."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from data.formats.target import new_target
from data.labels import count, label
from data.manifest import atomic_write_json
from data.records import Episode


def label_all(
    episodes: Iterable[Episode],
    rule: str,
    out: Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
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


def _column(episode: Episode, key: str) -> Any:  # noqa: ANN401 - an array (T,)
    if key not in episode.extra:
        raise ValueError(f"Episode {episode.id} has no diagnostic {key!r}; it has {sorted(episode.extra)}.")
    return episode.extra[key]
