"""Where a LeRobot checkpoint is: a folder here, or a repository of the Hugging Face hub."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from policies.checkpoint import CheckpointError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TRAINED = "pretrained_model"
"""Folder in which LeRobot's training, and ours, puts a checkpoint below that of its run."""
PREPROCESSOR = "policy_preprocessor.json"
POSTPROCESSOR = "policy_postprocessor.json"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WANTED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")


def is_repository_id(source: str) -> bool:
    """Whether a text could be the id of a repository on the hub, such as ``lerobot/diffusion_pusht``."""
    return _REPOSITORY.fullmatch(source) is not None


def matches(source: str) -> bool:
    """Whether a source is a LeRobot checkpoint: a folder that says so, or (where there is none) a hub id."""
    path = Path(source)
    if path.exists():
        return is_checkpoint(path) or is_checkpoint(path / TRAINED)
    return is_repository_id(source)


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder says that it holds a policy of LeRobot."""
    try:
        return "type" in read_json(folder / CONFIG)
    except CheckpointError:
        return False


def locate(source: str, revision: str | None = None) -> Path:
    """Return the folder of a checkpoint, downloaded from the hub if it is not here.

    Args:
        source: a folder, one that holds it as ``pretrained_model``, or the id of a repository on the hub.
        revision: branch, tag or commit of the repository; None: its main branch.

    Raises:
        CheckpointError: if it is neither, the hub cannot be reached, or a file is missing.
    """
    folder = Path(source) if Path(source).exists() else download(source, revision)
    if not is_checkpoint(folder) and is_checkpoint(folder / TRAINED):
        folder /= TRAINED
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; give the folder that holds {CONFIG} and {WEIGHTS}")
    missing = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        held = ", ".join(sorted(item.name for item in folder.iterdir())) or "nothing"
        raise CheckpointError(f"{source} has no {' and no '.join(missing)}; it holds {held}")
    without = [name for name in (PREPROCESSOR, POSTPROCESSOR) if not (folder / name).is_file()]
    if without:
        raise CheckpointError(
            f"{source} has no {' and no '.join(without)}: it was saved by an older LeRobot, or by hand. "
            "Convert it "
            f"once with `python -m lerobot.processor.migrate_policy_normalization --pretrained-path {source}`"
        )
    return folder


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        CheckpointError: if it cannot be read or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): restore it from a copy") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}; an object is expected")
    return value


def download(source: str, revision: str | None) -> Path:
    """Return the folder of a repository's files, fetched from the hub or from the cache of earlier downloads.

    Args:
        source: id of the repository.
        revision: branch, tag or commit; None: its main branch.

    Raises:
        CheckpointError: if it is no id, there is no such repository, or the hub cannot be reached.
    """
    if not is_repository_id(source):
        raise CheckpointError(f"there is no folder {source}, and it is no id of the hub, such as user/name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    at = "" if revision is None else f" at revision {revision!r}"
    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(_WANTED)))
    except GatedRepoError as error:
        raise CheckpointError(
            f"{source} on the hub is gated: accept its terms there and log in with `hf auth login`"
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise CheckpointError(
            f"there is no folder {source} here, and the hub has no repository of that name{at}"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"there is no folder {source} here, and the repository of that name{at} could not be fetched "
            "from the "
            f"hub ({type(error).__name__}). Without a network, copy its folder here and give that path"
        ) from error
