"""A retention rule for a store: makes room, and never removes an episode that exists nowhere else."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data.episode_folder import GROUP_FILE
from data.errors import StoreError
from data.receipts import Receipt, proof
from data.steps import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from data.store import EpisodeStore

_DAY_S = 86400.0


@dataclass(frozen=True)
class Retention:
    """Which episodes may go; at least one of the three limits must be given.

    Attributes:
        keep: The newest that stay, by when they were finished in this store; None for no limit.
        max_gb: Episodes go, the oldest first, until the store is no larger, in 10^9 bytes.
        older_than_days: Episodes finished longer ago than that go.
        outcomes: Only episodes with these outcomes may go; any when empty.
    """

    keep: int | None = None
    max_gb: float | None = None
    older_than_days: float | None = None
    outcomes: tuple[Outcome, ...] = ()

    def __post_init__(self) -> None:
        """Check the limits."""
        object.__setattr__(self, "outcomes", tuple(Outcome(outcome) for outcome in self.outcomes))
        limits = {"keep": self.keep, "max_gb": self.max_gb, "older_than_days": self.older_than_days}
        if all(value is None for value in limits.values()):
            raise ValueError(f"No limit is given; choose one or more of {', '.join(limits)}.")
        for name, value in limits.items():
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}; a number that is not negative is needed.")


@dataclass(frozen=True)
class Candidate:
    """An episode that the rule would remove.

    Attributes:
        id: Its name.
        size: Bytes it takes.
        finished: When it was written to this store, s since 1970-01-01 UTC.
        because: Which limit says so.
        receipt: Where else it is; None where that is not known, and then it stays.
    """

    id: str
    size: int
    finished: float
    because: str
    receipt: Receipt | None


@dataclass(frozen=True)
class Plan:
    """What a rule comes to.

    Attributes:
        remove: Episodes that the rule removes and that exist elsewhere.
        protected: Episodes that the rule would remove, but that exist nowhere else as far as is known.
        unreadable: Damaged episodes by id, with what is wrong; they stay.
        size: Bytes of all episodes.
        count: Number of all episodes.
    """

    remove: tuple[Candidate, ...]
    protected: tuple[Candidate, ...]
    unreadable: dict[str, str]
    size: int
    count: int

    @property
    def freed(self) -> int:
        """Bytes that removing sets free."""
        return sum(candidate.size for candidate in self.remove)


def plan(store: EpisodeStore, rule: Retention, *, now: float | None = None) -> Plan:
    """Say what a rule would remove; removes nothing.

    Args:
        store: The store.
        rule: What may go.
        now: Time of day, s since 1970-01-01 UTC; the clock's when None.

    Raises:
        StoreError: There is no store.
    """
    known, unreadable = _look(store)
    total = sum(_size(store.path / id_) for id_ in unreadable) + sum(one.size for one in known)
    allowed = [one for one in known if not rule.outcomes or one.outcome in rule.outcomes]
    reasons = _by_number_and_age(rule, known, time.time() if now is None else now)
    found = _candidates(store, {one: reasons[one.id] for one in allowed if one.id in reasons}, unreadable)
    if rule.max_gb is not None:
        left = total - sum(one.size for one in found if one.receipt)
        because = f"the store is larger than {rule.max_gb:g} GB"
        for one in allowed:
            if left <= rule.max_gb * 1e9:
                break
            if one.id not in reasons:
                more = _candidates(store, {one: because}, unreadable)
                left -= sum(each.size for each in more if each.receipt)
                found += more
    return Plan(
        remove=tuple(one for one in found if one.receipt),
        protected=tuple(one for one in found if not one.receipt),
        unreadable=unreadable,
        size=total,
        count=len(store),
    )


def apply(store: EpisodeStore, made: Plan, *, progress: Callable[[str], None] = lambda _: None) -> list[str]:
    """Remove what a plan says; each receipt is checked again at that moment.

    Returns:
        The ids that were removed.

    Raises:
        LockedStoreError: Another process is writing to the store.
    """
    removed = []
    for candidate in made.remove:
        if _proven(store, candidate.id):
            with suppress(KeyError):  # removed meanwhile by somebody else
                store.remove(candidate.id)
                removed.append(candidate.id)
        progress(candidate.id)
    return removed


@dataclass(frozen=True)
class _Known:
    id: str
    size: int
    finished: float
    outcome: Outcome


def _look(store: EpisodeStore) -> tuple[list[_Known], dict[str, str]]:
    """Every episode, the oldest first, and what is wrong with those that cannot be read."""
    known: list[_Known] = []
    unreadable: dict[str, str] = {}
    for id_ in store.ids():
        folder = store.path / id_
        try:
            outcome, finished = store.summary(id_).outcome, (folder / GROUP_FILE).stat().st_mtime
            known.append(_Known(id_, _size(folder), finished, outcome))
        except (KeyError, FileNotFoundError):  # removed meanwhile
            continue
        except (StoreError, OSError) as error:
            unreadable[id_] = str(error)
    return sorted(known, key=lambda one: (one.finished, one.id)), unreadable


def _by_number_and_age(rule: Retention, oldest_first: Sequence[_Known], now: float) -> dict[str, str]:
    reasons: dict[str, str] = {}
    if rule.keep is not None:
        beyond = oldest_first[: max(0, len(oldest_first) - rule.keep)]
        reasons = {one.id: f"beyond the newest {rule.keep}" for one in beyond}
    if rule.older_than_days is not None:
        for one in oldest_first:
            days = (now - one.finished) / _DAY_S
            if days > rule.older_than_days:
                reasons.setdefault(one.id, f"{days:.1f} days old")
    return reasons


def _candidates(
    store: EpisodeStore, reasons: Mapping[_Known, str], unreadable: dict[str, str]
) -> list[Candidate]:
    """Episodes with where else they are; those that cannot be read are added to the unreadable ones."""
    found = []
    for one, because in reasons.items():
        try:
            found.append(Candidate(one.id, one.size, one.finished, because, proof(store, one.id)))
        except KeyError:  # removed meanwhile
            continue
        except StoreError as error:
            unreadable[one.id] = str(error)
    return found


def _proven(store: EpisodeStore, id_: str) -> bool:
    try:
        return proof(store, id_) is not None
    except (StoreError, KeyError):
        return False


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
