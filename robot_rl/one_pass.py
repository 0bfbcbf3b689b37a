"""The frame of methods that learn in one pass, not wave by wave as `robot_rl.online` does.

It owns the run directory, that a finished run is not done again, the proof that the base stayed as it was,
and what every result says. A method brings a function that makes the refiner.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from data.config import to_dict
from policies.policy import Policy
from robot_rl.methods import check_unchanged, load_base
from robot_rl.parts import save_refiner
from robot_rl.runs import RunDirectory
from robot_rl.threads import one_torch_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from robot_rl.method_config import MethodConfig
    from robot_rl.methods import Method
    from robot_rl.refiner import Refiner


@dataclass(frozen=True, eq=False)
class OnePass[Config: MethodConfig]:
    """One run of a method.

    Attributes:
        config: Of the method.
        method: Its name.
        run: Where everything goes.
        policy: The frozen base, which has what the method needs.
        base_hash: Of it, before anything was done.
    """

    config: Config
    method: str
    run: RunDirectory
    policy: Policy
    base_hash: str

    def save(self, refiner: Refiner, **facts: Any) -> Refiner:  # noqa: ANN401 - JSON values
        """Write the refiner of this base; returns it with its version.

        Raises:
            RuntimeError: The base has changed.
        """
        check_unchanged(self.policy, self.base_hash)
        known = {"task": self.config.task, "method": self.method, "policy": str(self.config.policy)}
        made = replace(refiner, base_hash=self.base_hash)
        return save_refiner(self.run.path / "refiner", made, {**known, **facts})


def refine_in_one_pass[Config: MethodConfig](
    config: Config, method: str | Method, work: Callable[[OnePass[Config]], tuple[Refiner, Mapping[str, Any]]]
) -> Path:
    """Run a method in its run directory; the base's weights do not change.

    Args:
        config: What to refine and how.
        method: Name of one of ours, or the method; says what the base must support.
        work: Makes and saves the refiner (`OnePass.save`); returns it and what `result.json` says besides.

    Returns:
        The run directory; its folder `refiner` is what `--refiner` loads.

    Raises:
        RuntimeError: The base's hash changed during the run.
        PolicyError: The base lacks what the method needs.
    """
    name = method if isinstance(method, str) else method.name
    settings = to_dict(replace(config, resume=False, wandb=False))
    directory = RunDirectory.create(config.out, settings, kind=name, resume=config.resume, wandb=config.wandb)
    with directory as run, one_torch_thread():
        if (run.path / "result.json").exists():
            return run.path
        started = time.monotonic()
        policy = load_base(config, method)
        here = OnePass(config, name, run, policy, policy.hash())
        saved, found = work(here)
        result = {
            **found,
            "base_hash_before": here.base_hash,
            "base_hash_after": check_unchanged(policy, here.base_hash),
            "refiner_version": saved.version,
            "wall_seconds": time.monotonic() - started,
        }
        run.write_json("result.json", result)
        return run.path
