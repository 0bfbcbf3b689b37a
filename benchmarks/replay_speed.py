"""Drawing batches from replays and filling them: ours beside stable-baselines3's and LeRobot's, in one run.

All hold the same number of transitions and hand out torch tensors on the CPU; ours gives NumPy arrays, and
the time to wrap them is counted. Batches of 256: a state of 32 numbers and an action of 7, alone and with two
84 x 84 colour pictures. Filling is compared with stable-baselines3's vectorised path, eight environments a
call. LeRobot's random shifts of pictures are off, since the others have none.
"""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from harness import Contestant, Stopwatch, measure, parser, publish

from data.labels import label
from data.records import EpisodeBuilder, Outcome, Step
from data.replay import Batch, Recording, ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from data.records import Episode

BATCH = 256
STATE, ACTIONS, PICTURE = 32, 7, (84, 84, 3)
KEY = "observation.state"
PICTURES = ("observation.images.left", "observation.images.right")
ENVIRONMENTS, STEPS = 8, 100
"""Episodes that are added at once, and the steps of each."""
PEERS = {"stable_baselines3": "stable-baselines3", "lerobot": "LeRobot"}


@dataclass(frozen=True)
class Memory:
    """What a replay of some steps takes."""

    name: str
    steps: int
    gigabytes: float
    how: str

    def line(self) -> str:
        """One line for people."""
        return f"{self.name}: {self.gigabytes:.2f} GB for {self.steps:,} steps with two pictures, {self.how}"


def recording(steps: int, generator: np.random.Generator, *, pictures: bool) -> Recording:
    """Makes an episode up."""
    observations = {KEY: generator.random((steps + 1, STATE), np.float32)}
    for key in PICTURES if pictures else ():
        observations[key] = generator.integers(0, 256, (steps + 1, *PICTURE), np.uint8)
    return Recording(
        observations=observations,
        action=generator.random((steps, ACTIONS), np.float32),
        reward=np.zeros(steps),
        ends=np.arange(steps) == steps - 1,
    )


def as_tensors(batch: Batch) -> list[torch.Tensor]:
    """Wraps what the peers hand out too, and the discounts, without a copy."""
    arrays = [*batch.observations.values(), *batch.next_observations.values()]
    arrays += [batch.action, batch.reward, batch.discount, batch.terminated, batch.truncated]
    return [torch.from_numpy(array) for array in arrays]


def our_sampling(rows: int, *, pictures: bool) -> Callable[[], Any]:
    """Draws from our replay."""
    generator = np.random.default_rng(0)
    steps = min(STEPS, rows // 2)
    replay = ReplayBuffer(rows)
    made = recording(steps, generator, pictures=pictures)
    for _ in range(rows // (steps + 1)):
        replay.extend([made])
    return lambda: as_tensors(replay.sample(BATCH, generator))


def sb3_buffer(rows: int, *, pictures: bool, environments: int = 1) -> Any:  # noqa: ANN401 - another package's class
    """stable-baselines3's replay of as many transitions, empty."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import DictReplayBuffer
    from stable_baselines3.common.buffers import ReplayBuffer as PlainBuffer

    state = spaces.Box(-9.0, 9.0, (STATE,), np.float32)
    action = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
    options = {"device": "cpu", "n_envs": environments}
    if not pictures:
        return PlainBuffer(rows, state, action, **options)
    shown = {key: spaces.Box(0, 255, PICTURE, np.uint8) for key in PICTURES}
    return DictReplayBuffer(rows, spaces.Dict({KEY: state, **shown}), action, **options)


def sb3_sampling(rows: int, *, pictures: bool) -> Callable[[], Any]:
    """Draws from stable-baselines3's replay."""
    buffer, generator = sb3_buffer(rows, pictures=pictures), np.random.default_rng(0)
    one = recording(rows, generator, pictures=pictures)
    for t in range(rows):
        now, after = ({k: v[t + i : t + i + 1] for k, v in one.observations.items()} for i in (0, 1))
        seen = (now, after) if pictures else (now[KEY], after[KEY])
        buffer.add(*seen, one.action[t : t + 1], np.zeros(1), np.zeros(1), [{}])
    return lambda: buffer.sample(BATCH)


def lerobot_buffer(rows: int, *, pictures: bool) -> Any:  # noqa: ANN401 - another package's class
    """LeRobot's replay of as many transitions, holding its first one, next pictures shared."""
    from lerobot.rl.buffer import ReplayBuffer as LeRobotBuffer

    keys = [KEY, *(PICTURES if pictures else ())]
    # Without a function of its own it compiles its shifts with torch, used or not.
    options = {"image_augmentation_function": torch.nn.Identity(), "use_drq": False}
    buffer = LeRobotBuffer(rows, "cpu", keys, optimize_memory=pictures, **options)
    # Pictures enter as LeRobot's own pipeline brings them: channels first.
    shapes = {key: (1, STATE) if key == KEY else (1, PICTURE[2], *PICTURE[:2]) for key in keys}
    seen = {key: torch.rand(shape) for key, shape in shapes.items()}
    buffer.add(seen, torch.rand(1, ACTIONS), 0.0, seen, done=False, truncated=False)
    return buffer


def lerobot_sampling(rows: int, *, pictures: bool) -> Callable[[], Any]:
    """Draws from LeRobot's replay."""
    buffer = lerobot_buffer(rows, pictures=pictures)
    seen = {key: torch.rand(array.shape[1:])[None] for key, array in buffer.states.items()}
    action = torch.rand(1, ACTIONS)
    for _ in range(rows):
        buffer.add(seen, action, 0.0, seen, done=False, truncated=False)
    return lambda: buffer.sample(BATCH)


def our_adding(*, pictures: bool) -> Callable[[], Any]:
    """Adds eight episodes at once to our replay."""
    generator = np.random.default_rng(0)
    made = [recording(STEPS, generator, pictures=pictures) for _ in range(ENVIRONMENTS)]
    replay = ReplayBuffer(4 * ENVIRONMENTS * (STEPS + 1))
    return lambda: replay.extend(made)


def recorded(steps: int, generator: np.random.Generator) -> list[Episode]:
    """Makes up what eight environments recorded."""
    episodes = []
    for index in range(ENVIRONMENTS):
        builder = EpisodeBuilder(id=f"e{index}", task="made up", seed=0)
        builder.start({KEY: generator.random(STATE, np.float32)})
        for t in range(steps):
            step = Step(action=generator.random(ACTIONS), wall_time=0.05 * t, monotonic_time=0.05 * t)
            builder.append(step, {KEY: generator.random(STATE, np.float32)})
        episodes.append(builder.finish(Outcome.FAILURE))
    return episodes


def our_recorded_adding(how: str, steps: int = STEPS) -> Callable[[], Any]:
    """Adds eight recorded episodes: one by one, as a wave, or as a wave with the labels of a method."""
    episodes = recorded(steps, np.random.default_rng(0))
    replay = ReplayBuffer(4 * ENVIRONMENTS * (steps + 1))
    ways: dict[str, Callable[[], Any]] = {
        "one by one": lambda: [replay.add(episode) for episode in episodes],
        "as a wave": lambda: replay.add_all(episodes),
        "as a wave, labelled": lambda: replay.add_all(episodes, [label(one, "lwd") for one in episodes]),
    }
    return ways[how]


def sb3_adding(*, pictures: bool) -> Callable[[], Any]:
    """Adds as many steps of eight environments to stable-baselines3's replay."""
    generator = np.random.default_rng(0)
    buffer = sb3_buffer(4 * ENVIRONMENTS * STEPS, pictures=pictures, environments=ENVIRONMENTS)
    made = [recording(STEPS, generator, pictures=pictures) for _ in range(ENVIRONMENTS)]
    keys = made[0].observations
    seen = {key: np.stack([one.observations[key] for one in made], 1) for key in keys}
    rows = [{key: array[t] for key, array in seen.items()} for t in range(STEPS + 1)]
    rows = rows if pictures else [row[KEY] for row in rows]
    actions = np.stack([one.action for one in made], 1)
    zeros, infos = np.zeros(ENVIRONMENTS), [{} for _ in range(ENVIRONMENTS)]

    def add() -> None:
        for t in range(STEPS):
            buffer.add(rows[t], rows[t + 1], actions[t], zeros, zeros, infos)

    return add


def contestant(
    name: str,
    make: Callable[[], Callable[[], Any]],
    repeat: int,
    peer: str | None = None,
    *,
    unit: str = "draw",
    each: int = 1,
) -> Contestant:
    """Builds a contestant that does something `repeat` times a turn, `each` units a time, made when due."""
    made: list[Callable[[], Any]] = []

    def turn(stopwatch: Stopwatch) -> int:
        if not made:
            made.append(make())
        with stopwatch:
            for _ in range(repeat):
                made[0]()
        return repeat * each

    return Contestant(name, turn, unit, peer, {"batch": BATCH, "repeat": repeat})


def sampling(
    what: str, rows: int, repeat: int, present: Sequence[str], *, pictures: bool
) -> list[Contestant]:
    """Builds ours, once beside each peer, and the peers."""
    makers = {"stable_baselines3": sb3_sampling, "lerobot": lerobot_sampling}
    found = []
    for package in present:
        peer = f"{PEERS[package]}, {what}"
        ours = partial(our_sampling, rows, pictures=pictures)
        theirs = partial(makers[package], rows, pictures=pictures)
        found.append(contestant(f"our replay beside {peer}", ours, repeat, peer))
        found.append(contestant(peer, theirs, repeat))
    return found or [
        contestant(f"our replay, {what}", partial(our_sampling, rows, pictures=pictures), repeat)
    ]


def adding(repeat: int, present: Sequence[str]) -> list[Contestant]:
    """Builds what adds eight episodes of a hundred steps, states only and with pictures."""
    unit: Any = {"unit": "transition", "each": ENVIRONMENTS * STEPS}
    found = []
    for what, pictures in (("states", False), ("pictures", True)):
        peer = f"stable-baselines3, adding {what}"
        times = max(1, repeat // 20) if pictures else repeat
        make = partial(our_adding, pictures=pictures)
        found.append(contestant(f"our replay, adding {what}", make, times, peer, **unit))
        if not pictures:
            found += recorded_adding(times, peer)
        if "stable_baselines3" in present:
            found.append(contestant(peer, partial(sb3_adding, pictures=pictures), times, **unit))
    return found


def recorded_adding(repeat: int, peer: str) -> list[Contestant]:
    """Builds what works out from recorded episodes of 100 and of 500 steps what may be learned from them."""
    found = []
    for steps, how in itertools.product(
        (STEPS, 5 * STEPS), ("one by one", "as a wave", "as a wave, labelled")
    ):
        unit: Any = {"unit": "transition", "each": ENVIRONMENTS * steps}
        name = f"our replay, adding episodes of {steps} steps {how}"
        made = contestant(name, partial(our_recorded_adding, how, steps), repeat, peer, **unit)
        found.append(made)
    return found


def memory(steps: int, present: Sequence[str]) -> list[Memory]:
    """Fills our replay with steps and sees what the process grew by; sums up what peers set aside."""
    generator = np.random.default_rng(0)
    made = recording(min(STEPS, steps), generator, pictures=True)
    episodes = -(-steps // len(made))
    before = resident_bytes()
    replay = ReplayBuffer(episodes * (len(made) + 1))
    for _ in range(episodes):
        replay.extend([made])
    assert len(replay) >= steps
    found = [Memory("our replay", steps, (resident_bytes() - before) / 1e9, "filled, growth of the process")]
    del replay
    if "stable_baselines3" in present:
        buffer = sb3_buffer(steps, pictures=True)
        arrays = [*buffer.observations.values(), *buffer.next_observations.values(), buffer.actions]
        size = sum(array.nbytes for array in arrays) / 1e9
        found.append(Memory("stable-baselines3", steps, size, "its arrays, not filled"))
    if "lerobot" in present:
        tensors = lerobot_buffer(steps, pictures=True).states.values()
        size = sum(tensor.nbytes for tensor in tensors) / 1e9
        found.append(Memory("LeRobot, next pictures shared", steps, size, "its tensors, not filled"))
    return found


def resident_bytes() -> int:
    """Memory of this process that is in use, 0 where the system does not say."""
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and writes; see `--help`."""
    torch.set_num_threads(1)
    command = parser(str(__doc__).partition("\n")[0])
    command.add_argument("--batches", type=int, default=500, help="batches in a turn; of pictures a 25th")
    command.add_argument("--rows", type=int, default=20_000, help="transitions held; with pictures a 10th")
    command.add_argument("--memory-steps", type=int, default=0, help="fill a replay of pictures this long")
    options = command.parse_args(arguments)
    present = [package for package in PEERS if importlib.util.find_spec(package)]
    skipped = {PEERS[package]: "not installed" for package in PEERS if package not in present}
    few = max(1, options.batches // 25)
    made = sampling("states", options.rows, options.batches, present, pictures=False)
    made += sampling("pictures", max(4, options.rows // 10), few, present, pictures=True)
    made += adding(max(1, options.batches // 10), present)
    figures: list[Any] = list(measure(made, repeats=options.repeats))
    if options.memory_steps:
        figures += memory(options.memory_steps, present)
    publish("replay_speed", figures, skipped=skipped, json_path=options.json)


if __name__ == "__main__":
    main()
