"""One demo of a robomimic file as an episode."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.errors import DatasetError
from data.formats import hdf5_file as hdf5
from data.formats import robomimic_names as names
from data.formats.compare import same_rows, truths
from data.formats.limits import Budget
from data.formats.recorded import ReadArrays, Rows, by_key, recorded_episode
from data.formats.robomimic_write import OWN
from data.layout import check_key, episode_from
from data.steps import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from data.records import Episode

_KNOWN = ("actions", "rewards", "dones", "obs", "next_obs", OWN)


@dataclass(frozen=True)
class ReadRobomimic(ReadArrays):
    """How a robomimic file is read; rate, task and robot are those of ``env_args`` where not given.

    Attributes:
        split: Read only the demos of this list under ``mask``, such as ``"valid"``.
        dones: What a done at the last step means. ``"success"``: the task ended where the step was rewarded;
            a done without reward only marks the end of the recording, so the episode is truncated.
            ``"terminal"``: the task ended. A done before the last step never cuts; all dones are kept among
            the diagnostics.
        gaps: What it means that ``next_obs[t]`` is not ``obs[t + 1]``: ``"error"``, or ``"ignore"`` it and go
            by ``obs``. Pictures are not compared.
    """

    split: str | None = None
    dones: Literal["success", "terminal"] = "success"
    gaps: Literal["error", "ignore"] = "error"


class Demo:
    """One open demo, its arrays checked against each other.

    Args:
        group: Its group, from h5py.
        options: How it is read; rate, task and robot filled in.
        env_args: Of the file.

    Raises:
        DatasetError: It has no actions or observations, or they differ in length.
    """

    def __init__(self, group: Any, options: ReadRobomimic, env_args: Mapping[str, Any]) -> None:  # noqa: ANN401 - h5py
        self._group, self._options, self._env_args = group, options, env_args
        self.name = str(group.name).rpartition("/")[2]
        self.place = f"{group.file.filename}, {self.name}"
        self._obs = {name: hdf5.child(hdf5.child(group, "obs"), name) for name in self._children("obs")}
        self._next = {
            name: hdf5.child(hdf5.child(group, "next_obs"), name) for name in self._children("next_obs")
        }
        self._actions = hdf5.child(group, "actions")
        if (
            not hdf5.is_dataset(self._actions)
            or self._actions.ndim != 2
            or not len(self._actions)
            or not self._obs
        ):
            raise DatasetError(
                f"{self.place} has {hdf5.children(group)}; actions (T, A) and obs are needed. A file "
                "with states only gets observations from robomimic's dataset_states_to_obs."
            )
        self.names = {self._key(name, dataset): name for name, dataset in self._obs.items()}
        self._check()
        own = hdf5.child(group, OWN)
        self.own = own if hdf5.is_group(own) else None
        found = self._diagnostics()
        self._extra = {key: node for key, node in found.items() if hdf5.is_per_step(node, len(self))}
        self.left_out = tuple(key for key in found if key not in self._extra)

    def __len__(self) -> int:
        return int(self._actions.shape[0])

    @property
    def width(self) -> int:
        """Dimensions A of an action."""
        return int(self._actions.shape[1])

    @property
    def complete(self) -> bool:
        """Whether the observation after the last step is there."""
        return bool(self._next)

    @property
    def rewarded(self) -> bool:
        """Whether rewards are there."""
        return hdf5.child(self._group, "rewards") is not None

    @property
    def goes_on_after_done(self) -> bool:
        """Whether a step before the last one is done."""
        dones = self._dones(Budget(1 << 30, self.place))
        return dones is not None and bool((dones[:-1] != 0).any())

    def episode(self, splits: list[str]) -> Episode:
        """Read everything.

        Args:
            splits: Lists that the demo is on.

        Raises:
            DatasetError: Its arrays do not fit together.
        """
        budget = Budget(self._options.max_decoded_bytes, self.place)
        extra = {"splits": splits} if splits else {}
        if self.own is not None:
            return self._own_episode(budget, extra)
        rewards, dones = self._column("rewards", budget), self._dones(budget)
        diagnostics = {key: hdf5.numbers(node, budget) for key, node in self._extra.items()}
        if dones is not None:
            diagnostics["dones"] = dones
        metadata: dict[str, Any] = {"env_args": self._env_args, **extra}
        model = hdf5.text_attribute(self._group, "model_file")
        if model is not None:
            metadata["model_file"] = model
        rows = Rows(
            action=hdf5.numbers(self._actions, budget),
            observations=self._complete_observations(budget),
            reward=rewards,
            terminated=self._ends(rewards, dones),
            extra=diagnostics,
            metadata=metadata,
            outcome=self._outcome(rewards),
        )
        return recorded_episode(self.name, rows, self._options)

    def observations(self, rows: slice, budget: Budget) -> dict[str, NDArray[Any]]:
        """Rows of ``obs`` by key."""
        return {key: hdf5.numbers(self._obs[name], budget, rows) for key, name in self.names.items()}

    def _own_episode(self, budget: Budget, more: dict[str, Any]) -> Episode:
        arrays = {f"observations/{key}": rows for key, rows in self._complete_observations(budget).items()}
        arrays |= {path: hdf5.numbers(node, budget) for path, node in _below(self.own)}
        states = hdf5.child(self._group, "states")
        if states is not None:
            arrays["extra/states"] = hdf5.numbers(states, budget)
        try:
            facts = json.loads(arrays.pop("facts").tobytes())
            facts["metadata"] |= more
            model = hdf5.text_attribute(self._group, "model_file")
            if model is not None:
                facts["metadata"]["model_file"] = model
            return episode_from(facts, arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"{self.place}: its parts in {OWN} do not fit together: {error}.") from error

    def _complete_observations(self, budget: Budget) -> dict[str, NDArray[Any]]:
        now = self.observations(slice(0, len(self)), budget)
        if not self.complete:
            return now
        last = slice(len(self) - 1, len(self))
        found = {}
        for key, rows in now.items():
            name = self.names[key]
            if self._options.gaps == "error" and not names.is_picture(rows.shape, str(rows.dtype)):
                self._refuse_gaps(name, rows, budget)
            found[key] = np.concatenate([rows, hdf5.numbers(self._next[name], budget, last)])
        return found

    def _refuse_gaps(self, name: str, rows: NDArray[Any], budget: Budget) -> None:
        same = same_rows(hdf5.numbers(self._next[name], budget)[:-1], rows[1:])
        if not same.all():
            step = int(np.flatnonzero(~same)[0])
            raise DatasetError(
                f"{self.place}: next_obs/{name}[{step}] is not obs/{name}[{step + 1}]: steps are missing in "
                "between. Cut the demo there, or read it with gaps='ignore' to go by obs."
            )

    def _ends(self, rewards: NDArray[Any] | None, dones: NDArray[Any] | None) -> bool:
        if dones is None or not dones[-1]:
            return False
        return self._options.dones == "terminal" or (rewards is not None and bool(rewards[-1] > 0))

    def _outcome(self, rewards: NDArray[Any] | None) -> Outcome:
        if rewards is None or not names.sparse_reward(self._env_args):
            return Outcome.UNKNOWN
        if (rewards > 0).any():
            return Outcome.SUCCESS
        return Outcome.UNKNOWN if np.isnan(rewards).any() else Outcome.FAILURE

    def _dones(self, budget: Budget) -> NDArray[Any] | None:
        dones = self._column("dones", budget)
        if dones is not None:
            truths(dones, f"{self.place}: dones")
        return dones

    def _column(self, name: str, budget: Budget) -> NDArray[Any] | None:
        dataset = hdf5.child(self._group, name)
        if dataset is None:
            return None
        values = hdf5.numbers(dataset, budget)
        if values.size != len(self):
            raise DatasetError(f"{self.place}: {name} has shape {values.shape}; ({len(self)},) is needed.")
        return values.reshape(-1)

    def _children(self, name: str) -> list[str]:
        group = hdf5.child(self._group, name)
        return hdf5.children(group) if hdf5.is_group(group) else []

    def _key(self, name: str, dataset: Any) -> str:  # noqa: ANN401 - h5py
        hdf5.check_dataset(dataset)
        own = hdf5.text_attribute(dataset, "key")
        if own is not None:
            return check_key(own)
        return names.observation_key(name, names.is_picture(dataset.shape, str(dataset.dtype)))

    def _check(self) -> None:
        if len(self.names) < len(self._obs) or (self._next and self._next.keys() != self._obs.keys()):
            raise DatasetError(
                f"{self.place}: obs {sorted(self._obs)} and next_obs {sorted(self._next)} must have the same "
                f"names, and different ones as keys: {sorted(self.names)}."
            )
        hdf5.check_dataset(self._actions)
        for dataset in self._next.values():
            hdf5.check_dataset(dataset)
        count = self._group.attrs.get("num_samples", len(self))
        lengths = {d.name: d.shape[:1] for d in (*self._obs.values(), *self._next.values())}
        wrong = {name: shape for name, shape in lengths.items() if shape != (len(self),)}
        if wrong or int(count) != len(self):
            raise DatasetError(
                f"{self.place}: {len(self)} actions, num_samples {count}, but {wrong or 'other'} rows; the "
                "recording was cut short. Take the demo out."
            )

    def _diagnostics(self) -> dict[str, Any]:
        found = {
            name: hdf5.child(self._group, name) for name in hdf5.children(self._group) if name not in _KNOWN
        }
        actions = found.get("action_dict")
        if hdf5.is_group(actions):
            del found["action_dict"]
            found |= {f"action_dict.{name}": hdf5.child(actions, name) for name in hdf5.children(actions)}
        return by_key(found, self.place)


def _below(group: Any, prefix: str = "", depth: int = 4) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - h5py
    """Datasets in a group and its groups, by path."""
    for name in hdf5.children(group):
        node = hdf5.child(group, name)
        if hdf5.is_dataset(node):
            yield f"{prefix}{name}", node
        elif depth:
            yield from _below(node, f"{prefix}{name}/", depth - 1)
