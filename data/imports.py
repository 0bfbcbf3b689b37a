"""Objects by ``module:name``, so that what is added from outside needs no edit in the library."""

from __future__ import annotations

import importlib
from typing import Any


class ImportPathError(ValueError):
    """A ``module:name`` leads nowhere.

    Attributes:
        path: What was given.
        reason: Why it leads nowhere, one line.
    """

    def __init__(self, path: str, reason: object) -> None:
        self.path, self.reason = path, str(reason)
        super().__init__(f"{path!r} cannot be imported: {reason}")


def import_object(path: str) -> Any:  # noqa: ANN401 - any object of any module
    """Import what ``module:name`` names.

    Args:
        path: Such as ``"my_package.my_module:MyPolicy"``; the module must be importable from here.

    Raises:
        ImportPathError: It is not of this form, the module cannot be imported, or it lacks the name.
    """
    module, _, name = path.partition(":")
    if not module or not name or module.startswith("."):
        raise ImportPathError(path, "it is not of the form module:name")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name != top:  # the module was found, and imports something that is not there
            raise ImportPathError(path, error) from error
        how = (
            f"{error}; install what provides it, or name the folder of {top}: PYTHONPATH=FOLDER robot-rl ..."
        )
        raise ImportPathError(path, how) from error
    except (ImportError, AttributeError) as error:
        raise ImportPathError(path, error) from error


def import_path(named: type) -> str:
    """Return the ``module:name`` under which `import_object` finds a class again."""
    return f"{named.__module__}:{named.__qualname__}"
