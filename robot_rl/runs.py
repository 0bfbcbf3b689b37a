"""Run directories: configuration, metrics and checkpoints of one run, safe to kill and to resume.

::

    outputs/base/
        config.json          full configuration, its hash, versions, git revision
        metrics.jsonl        one row per log call
        tensorboard/         the same numbers as TensorBoard events
        checkpoints/000500/  what the trainer saved at step 500, and manifest.json
        result.json          what the run reports at its end
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from data.config import to_dict
from data.lock import FileLock
from data.manifest import atomic_write_json, file_manifest, sha256_file
from robot_rl.metrics import MetricsLog, read_metrics
from robot_rl.provenance import config_differences, config_hash, git_revision, versions

FORMAT = 1
_HEADER = "config.json"
_HEADER_NAMES = frozenset({"format", "kind", "config_hash", "config", "versions"})


class RunError(ValueError):
    """A run directory cannot be used as asked; the message says why and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    step: int
    """what the run counts (updates or environment steps) when it was saved"""
    path: Path
    """folder with the trainer's files"""
    manifest: dict[str, Any]
    """versions, git revision, configuration hash and what the trainer added, such as the base's hash"""


class RunDirectory:
    """One run's folder. Made with :meth:`create` by a trainer or :meth:`open` by a reader.

    Attributes:
        path: the folder.
        config: the full configuration as plain JSON values.
        config_hash: its hash (``provenance.config_hash``).
        kind: what the run is (train, refine, ...).
        versions: of Python and the libraries when it was started.
        resumed: the checkpoint the run goes on from, None for a fresh run.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], resumed: Checkpoint | None = None) -> None:
        self.path = path
        self.config: dict[str, Any] = dict(header["config"])
        self.config_hash: str = header["config_hash"]
        self.kind: str = header["kind"]
        self.versions: dict[str, str] = dict(header["versions"])
        self.resumed = resumed
        self._metrics: MetricsLog | None = None
        self._wandb = False
        self._lock: FileLock | None = None
        self._fresh = False

    @classmethod
    def create(
        cls,
        path: Path | str,
        config: object,
        *,
        kind: str = "run",
        resume: bool = False,
        replace: bool = False,
        wandb: bool = False,
    ) -> Self:
        """Make a run directory, or go on with the one that is there.

        Args:
            path: the folder; parents are made.
            config: a configuration dataclass, or a mapping of plain JSON values.
            kind: what the run is (train, refine, demo, collect).
            resume: go on from the last complete checkpoint if the folder holds a run of the same
                configuration; metrics after that checkpoint are dropped. An empty or missing folder starts a
                fresh run.
            replace: remove a run that is already there.
            wandb: also log metrics to Weights & Biases.

        Raises:
            RunError: if the folder holds another run, another configuration, or files that are no run, or
                another process runs in it.
        """
        folder = Path(path)
        plain = dict(config) if isinstance(config, Mapping) else to_dict(config)
        header = _new_header(kind, plain)
        lock = _locked(folder)
        try:
            if replace and not resume:
                remove_run(folder, kind)
            if (folder / _HEADER).exists():
                run = cls._reopen(folder, header, resume=resume)
            else:
                _refuse_foreign_files(folder)
                atomic_write_json(folder / _HEADER, header)
                run = cls(folder, header)
                run._fresh = True
        except BaseException:
            lock.release()
            raise
        run._lock = lock
        run._wandb = wandb
        return run

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a finished or running run for reading.

        Raises:
            RunError: if the folder holds no run.
        """
        folder = Path(path)
        if not (folder / _HEADER).exists():
            raise RunError(
                f"{folder} holds no run (no config.json): give the folder a command wrote with --out"
            )
        return cls(folder, _read_header(folder))

    @classmethod
    def _reopen(cls, folder: Path, header: Mapping[str, Any], *, resume: bool) -> Self:
        old = _read_header(folder)
        if not resume:
            raise RunError(
                f"{folder} holds a {old['kind']} run: --resume goes on with it, a new --out starts one"
            )
        if old["kind"] != header["kind"] or old["config_hash"] != header["config_hash"]:
            differences = config_differences(old["config"], header["config"]) or [
                f"kind: {old['kind']} there, {header['kind']} now"
            ]
            raise RunError(
                f"cannot resume {folder}, its configuration differs ({'; '.join(differences)}): "
                "repeat the first command's options, or give another --out"
            )
        checkpoints = _complete_checkpoints(folder)
        if checkpoints:
            check_files(checkpoints[-1])
        return cls(folder, old, resumed=checkpoints[-1] if checkpoints else None)

    def log(self, step: int, values: Mapping[str, float | int | str | bool]) -> None:
        """Append one row of metrics; see :meth:`MetricsLog.log`."""
        self._log().log(step, values)

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of metrics.jsonl so far, each with ``step``."""
        return read_metrics(self.path / "metrics.jsonl")

    def checkpoints(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first."""
        return _complete_checkpoints(self.path)

    @contextmanager
    def checkpoint(self, step: int, *, keep: int = 2, **details: object) -> Iterator[Path]:
        """Hand out a folder to write files into; it becomes the checkpoint only when complete.

        Args:
            step: the run's counter now.
            keep: how many checkpoints stay on disk, this one included.
            details: further JSON values for the manifest, such as the frozen base's hash.
        """
        if keep < 1:
            raise ValueError(f"keep is {keep}, allowed is 1 or more: the newest checkpoint always stays")
        root = self.path / "checkpoints"
        partial, final = root / f".partial-{step:09d}", root / f"{step:09d}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        self._log().sync()  # a checkpoint must never be newer than the metrics it follows
        manifest = {
            "format": FORMAT,
            "step": step,
            "config_hash": self.config_hash,
            "versions": versions(),
            "git_revision": git_revision(),
            "files": file_manifest(partial),
        } | details
        atomic_write_json(partial / "manifest.json", manifest)
        shutil.rmtree(final, ignore_errors=True)
        partial.replace(final)
        for old in self.checkpoints()[:-keep]:
            shutil.rmtree(old.path)

    def write_json(self, name: str, payload: Mapping[str, Any]) -> Path:
        """Write ``name`` (for example ``result.json``) into the run in one step and return its path."""
        atomic_write_json(self.path / name, payload)
        return self.path / name

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the run.

        Raises:
            RunError: if the run has not written it (yet).
        """
        file = self.path / name
        if not file.exists():
            raise RunError(
                f"{file} is missing: the {self.kind} run did not finish; go on with it by --resume"
            )
        return _read_json(file)

    def close(self) -> None:
        """Close the metrics and let others use the folder; a second call does nothing."""
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is not None and self._fresh and [item.name for item in self.path.iterdir()] == [_HEADER]:
            # A mistyped option must not occupy the folder that the corrected command will name.
            (self.path / _HEADER).unlink()
        self.close()

    def _log(self) -> MetricsLog:
        if self._metrics is None:
            # Rows written after the checkpoint belong to a future that will be computed again.
            resumed_step = self.resumed.step if self.resumed is not None else -1
            self._metrics = MetricsLog(self.path, keep_until=resumed_step, wandb=self._wandb)
        return self._metrics


def _new_header(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": kind,
        "config_hash": config_hash(config),
        "config": config,
        "versions": versions(),
        "git_revision": git_revision(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def remove_run(folder: Path, kind: str) -> None:
    """Remove what a run left in its folder; a missing or empty folder is fine.

    Args:
        folder: of the run.
        kind: of the run that may be removed.

    Raises:
        RunError: if the folder holds something else, so that a mistyped path costs nothing.
    """
    if not (folder / _HEADER).exists():
        _refuse_foreign_files(folder)
        return
    found = _read_header(folder)["kind"]
    if found != kind:
        raise RunError(f"{folder} holds a {found} run, not a {kind} run: remove it, or give another --out")
    for item in folder.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        elif item.name != _HEADER:
            item.unlink()
    (folder / _HEADER).unlink()  # last: a process that dies here leaves what can be removed again


def _locked(folder: Path) -> FileLock:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: give a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made ({error.strerror}): give a folder elsewhere") from error
    lock = FileLock(folder)
    if not lock.acquire():
        raise RunError(f"another process runs in {folder}: wait until it ends, or give another --out")
    return lock


def _refuse_foreign_files(folder: Path) -> None:
    found = [item.name for item in folder.iterdir()] if folder.is_dir() else []
    if any(not (name.startswith(".") and name.endswith(".tmp")) for name in found):
        raise RunError(f"{folder} is not empty and holds no run: give a new folder")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{file} is damaged ({error}): restore it from a copy, or start a new run") from error
    if not isinstance(loaded, dict):
        raise RunError(f"{file} holds no JSON object: restore it from a copy, or start a new run")
    return loaded


def _read_header(folder: Path) -> dict[str, Any]:
    header = _read_json(folder / _HEADER)
    if missing := sorted(_HEADER_NAMES - header.keys()):
        raise RunError(f"{folder} holds no run (config.json lacks {', '.join(missing)}): give another folder")
    return header


def check_files(checkpoint: Checkpoint) -> None:
    """Compare a checkpoint's files with the checksums of its manifest.

    Raises:
        RunError: One is missing or was changed.
    """
    for name, facts in checkpoint.manifest.get("files", {}).items():
        file = checkpoint.path / name
        if not file.is_file() or sha256_file(file) != facts["sha256"]:
            what = "was changed" if file.exists() else "is missing"
            raise RunError(
                f"{file} {what} since it was saved: restore it from a copy, "
                f"or remove {checkpoint.path} to go on from the checkpoint before"
            )


def _complete_checkpoints(folder: Path) -> list[Checkpoint]:
    found = []
    for manifest in sorted((folder / "checkpoints").glob("[0-9]*/manifest.json")):
        content = _read_json(manifest)
        found.append(Checkpoint(content["step"], manifest.parent, content))
    return found
