"""robomimic checkpoints, read without running what is in them.

A .pth of robomimic is a pickle. Only what is named here is ever built from it: tensors, plain containers and
numbers of NumPy. Anything else is refused by name.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.formats.extras import require
from policies.checkpoint import CheckpointError

ALLOWED: tuple[Any, ...] = (
    np.dtype,
    np.ndarray,
    *(type(np.dtype(name)) for name in ("float64", "float32", "int64", "int32", "uint8", "bool")),
    # Numbers such as the best success rate; under their name of NumPy 2 and of NumPy 1.
    (np.float64(0).__reduce__()[0], "numpy._core.multiarray.scalar"),
    (np.float64(0).__reduce__()[0], "numpy.core.multiarray.scalar"),
    (np.zeros(1).__reduce__()[0], "numpy._core.multiarray._reconstruct"),
    (np.zeros(1).__reduce__()[0], "numpy.core.multiarray._reconstruct"),
)
"""Classes and functions besides torch's own short list that a checkpoint may name."""
_ENTRIES = ("model", "config", "algo_name", "shape_metadata", "env_metadata")


@dataclass(frozen=True)
class RobomimicCheckpoint:
    """What a checkpoint holds.

    Attributes:
        path: of the file.
        algo_name: such as "bc" or "diffusion_policy".
        config: of robomimic, locked.
        shapes: robomimic's key -> shape as its network sees it.
        action_size: A.
        env_metadata: as in the ``env_args`` of a data set.
        model: state dictionaries.
        observation_stats: key -> {"offset", "scale"}; None: not normalised.
        action_stats: the same for action keys.
    """

    path: Path
    algo_name: str
    config: Any
    shapes: Mapping[str, tuple[int, ...]]
    action_size: int
    env_metadata: Mapping[str, Any]
    model: Mapping[str, Any]
    observation_stats: Mapping[str, Mapping[str, Any]] | None
    action_stats: Mapping[str, Mapping[str, Any]] | None


def read_checkpoint(path: Path | str) -> RobomimicCheckpoint:
    """Read a checkpoint that robomimic saved.

    Args:
        path: a ``.pth`` file.

    Raises:
        CheckpointError: it holds something that is not allowed, is damaged, or is of another program.
        ImportError: robomimic is not installed.
    """
    path = Path(path)
    found = _load(path)
    missing = [name for name in _ENTRIES if not isinstance(found, dict) or name not in found]
    if missing:
        raise CheckpointError(f"{path} is no checkpoint of robomimic: it lacks {', '.join(missing)}")
    try:
        config = _config(str(found["algo_name"]), json.loads(found["config"]))
        shapes = {str(key): tuple(shape) for key, shape in found["shape_metadata"]["all_shapes"].items()}
        action_size = int(found["shape_metadata"]["ac_dim"])
        stats = [_stats(found.get(f"{kind}_normalization_stats")) for kind in ("obs", "action")]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or of another version of robomimic: {error!r}") from error
    return RobomimicCheckpoint(
        path,
        str(found["algo_name"]),
        config,
        shapes,
        action_size,
        found["env_metadata"] or {},
        found["model"],
        *stats,
    )


def _load(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        with torch.serialization.safe_globals(list(ALLOWED)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        names = ", ".join(_unsafe(path)) or str(error).partition("\n")[0]
        raise CheckpointError(
            f"{path} is refused: it holds {names}, which could run code when it is read. If you trust who "
            "made it, load it with robomimic on a machine that holds nothing else, and save only its "
            "'model', 'config', 'algo_name', 'shape_metadata' and 'env_metadata' again"
        ) from error
    except (OSError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path} cannot be read: {error}; restore it from a copy") from error


def _unsafe(path: Path) -> list[str]:
    """Names in a checkpoint that are not allowed; nothing of it is built to find them."""
    try:
        with torch.serialization.safe_globals(list(ALLOWED)):
            found: list[str] = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # noqa: BLE001 - only to say more; the file is refused already
        return []
    return found


def _config(algo_name: str, entries: dict[str, Any]) -> Any:  # noqa: ANN401 - of robomimic
    factory = require("robomimic.config", "robomimic", "A robomimic checkpoint")
    with redirect_stdout(io.StringIO()):
        config = factory.config_factory(algo_name, dic=entries)
    config.lock()
    return config


def _stats(found: Mapping[str, Mapping[str, Any]] | None) -> dict[str, dict[str, Any]] | None:
    if found is None:
        return None
    return {
        str(k): {name: np.asarray(v, np.float32) for name, v in entry.items()} for k, entry in found.items()
    }
