"""Which task a trained policy was made for, where its run says so."""

import json
from pathlib import Path


def made_for(policy: Path) -> str | None:
    """Task whose demonstrations a policy was trained on; None where the files do not say.

    Args:
        policy: folder of the policy. Its ``result.json`` names the demonstrations, whose own run names the
            task; both are looked for as they were named, and beside the policy.
    """
    source = _value(policy / "result.json", "source")
    if source is None:
        return None
    recorded = Path(source)
    for store in (recorded, policy.parent / Path(*recorded.parts[-2:])):
        task = _value(store.parent / "config.json", "config", "task")
        if task is not None:
            return task
    return None


def _value(path: Path, *keys: str) -> str | None:
    try:
        found = json.loads(path.read_text("utf-8"))
        for key in keys:
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError):  # no such run, or one that does not say
        return None
    return found if isinstance(found, str) else None
