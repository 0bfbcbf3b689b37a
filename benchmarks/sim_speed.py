"""Control steps per second on one core: our tasks beside robosuite's Lift and NutAssemblySquare, in one run.

Every environment steps without rendering and with small uniformly random actions; PushDisc and PegInsert are
also timed on their expert's actions, recorded beforehand, because contact is what costs. Resets are outside
the clock. robosuite runs OSC_POSE at 20 Hz with state observations, as PegInsert does.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import Contestant, Stopwatch, measure, parser, publish

import sim

if TYPE_CHECKING:
    from collections.abc import Sequence

PEERS = ("Lift", "NutAssemblySquare")
SMALL = 0.2
OURS = {"peg-insert": "PegInsert", "push-disc": "PushDisc"}


class GymnasiumStepper:
    """Steps one of our tasks, from seed to seed, on random or recorded actions."""

    def __init__(self, task: str, actions: str, steps: int) -> None:
        self._env: Any = sim.make(task)
        self.control_hz = self._env.unwrapped.control_hz
        self._steps = steps
        self._expert = actions == "expert"
        self._generator = np.random.default_rng(0)
        self._recorded: dict[int, list[np.ndarray]] = {}

    def turn(self, stopwatch: Stopwatch) -> int:
        """Steps `steps` times over as many episodes as that takes, always from seed 0 on."""
        done = 0
        seed = 0
        while done < self._steps:
            actions = self._expert_actions(seed) if self._expert else self._random_actions()
            self._env.reset(seed=seed)
            seed += 1
            with stopwatch:
                for action in actions[: self._steps - done]:
                    _, _, terminated, truncated, _ = self._env.step(action)
                    done += 1
                    if terminated or truncated:
                        break
        return done

    def _random_actions(self) -> Sequence[np.ndarray]:
        low, high = self._env.action_space.low, self._env.action_space.high
        count = self._env.unwrapped.max_steps
        return list(self._generator.uniform(SMALL * low, SMALL * high, (count, low.size)).astype(low.dtype))

    def _expert_actions(self, seed: int) -> Sequence[np.ndarray]:
        if seed not in self._recorded:
            self._env.reset(seed=seed)
            expert = self._env.unwrapped.expert(seed)
            actions: list[np.ndarray] = []
            finished = False
            while not finished:
                actions.append(expert.act())
                _, _, terminated, truncated, _ = self._env.step(actions[-1])
                finished = terminated or truncated
            self._recorded[seed] = actions
        return self._recorded[seed]


class RobosuiteStepper:
    """Steps a robosuite task with a Panda arm on random actions; robosuite is optional, so imported here."""

    def __init__(self, task: str, steps: int) -> None:
        import robosuite
        from robosuite.controllers import load_composite_controller_config

        logging.getLogger("robosuite_logs").setLevel(logging.ERROR)  # it remarks on every reset otherwise
        self._steps = steps
        self._generator = np.random.default_rng(0)
        self._env: Any = robosuite.make(
            task,
            robots="Panda",
            controller_configs=load_composite_controller_config(controller="BASIC"),
            control_freq=20,
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            ignore_done=True,
        )

    def turn(self, stopwatch: Stopwatch) -> int:
        """Resets, then steps `steps` times."""
        self._env.reset()
        low, high = self._env.action_spec
        actions = self._generator.uniform(SMALL * low, SMALL * high, (self._steps, low.size))
        with stopwatch:
            for action in actions:
                self._env.step(action)
        return self._steps


def own(task: str, actions: str, steps: int, peer: str | None) -> Contestant:
    """Builds the contestant for one of our tasks."""
    stepper = GymnasiumStepper(task, actions, steps)
    settings = {"actions": actions, "control_hz": stepper.control_hz, "steps": steps}
    return Contestant(f"{OURS[task]}, {actions} actions", stepper.turn, "control step", peer, settings)


def peers(names: Sequence[str], steps: int) -> tuple[list[Contestant], dict[str, str]]:
    """Builds the robosuite contestants, or says why there are none."""
    if importlib.util.find_spec("robosuite") is None:
        return [], {f"robosuite {name}": "robosuite is not installed" for name in names}
    settings = {
        "robot": "Panda",
        "controller": "OSC_POSE",
        "control_hz": 20,
        "actions": "random",
        "steps": steps,
    }
    logging.disable(logging.WARNING)  # robosuite remarks on missing extras while it is imported
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steppers = {name: RobosuiteStepper(name, steps) for name in names}
    logging.disable(logging.NOTSET)
    return [
        Contestant(f"robosuite {name}", stepper.turn, "control step", None, settings)
        for name, stepper in steppers.items()
    ], {}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    command = parser(str(__doc__).partition("\n")[0])
    command.add_argument("--steps", type=int, default=1000, help="control steps of ours in a turn")
    command.add_argument("--peer-steps", type=int, default=100, help="control steps of a peer in a turn")
    command.add_argument("--tasks", nargs="*", default=list(OURS), choices=list(OURS))
    command.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    options = command.parse_args(arguments)
    contestants, skipped = peers(options.peers, options.peer_steps)
    reference = contestants[0].name if contestants else None
    ours = [
        own(task, actions, options.steps, reference)
        for task in options.tasks
        for actions in ("random", "expert")
    ]
    figures = measure([*ours, *contestants], repeats=options.repeats)
    publish("sim_speed", figures, skipped=skipped, json_path=options.json)


if __name__ == "__main__":
    main()
