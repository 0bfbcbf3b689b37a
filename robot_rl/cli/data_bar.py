"""What the sub-commands of ``robot-rl data`` share: the bar over episodes, and the store of a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from robot_rl.progress import stage


@contextmanager
def bar(name: str, path: Path, form: str | None = None) -> Iterator[Callable[[str], None]]:
    """Progress over the episodes of a data set.

    Yields:
        a function to call with each episode's id.
    """
    from data.formats.registry import detect
    from data.store import EpisodeStore

    total = len(EpisodeStore(path)) if path.exists() and (form or detect(path)) == "zarr" else None
    with stage(name, total) as reporter:
        yield lambda _: reporter.advance()


def inside(path: Path) -> Path:
    """The episode store of a run, or the path itself."""
    inner = path / "episodes"
    return inner if (inner / "zarr.json").is_file() and not (path / "zarr.json").is_file() else path
