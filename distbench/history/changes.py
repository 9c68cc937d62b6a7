"""What changed between two nights, or since each scenario ran last."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from distbench.history.limits import Limits
from distbench.history.night import Key, Night, Row
from distbench.verdict import NOT_EXECUTED, Status
from distbench.verdict.settings import list_settings

Kind = Literal[
    "new failure",
    "other cause",
    "worse",
    "nearer to its bound",
    "slower",
    "quarantined",
    "fixed",
    "better",
    "farther from its bound",
    "faster",
    "gone",
    "new",
]
WORSE: frozenset[Kind] = frozenset(
    {"new failure", "other cause", "worse", "nearer to its bound", "slower"}
)
"""Changes that a caller should look at."""

_WEIGHT = {
    Status.PASS: 0,
    Status.UNDECIDABLE: 2,
    Status.VACUOUS: 2,
    Status.ERROR: 3,
    Status.FAIL: 4,
    # What does not run any more is not checked any more.
    Status.SKIPPED: 1,
    Status.REFUSED: 1,
}
_BROKEN = (Status.FAIL, Status.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What changed of one scenario.

    Attributes:
        key: Which scenario.
        kind: What changed.
        before: As it was, in words.
        now: As it is.
    """

    key: Key
    kind: Kind
    before: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NightDifference:
    """What changed between two nights.

    Attributes:
        changes: By scenario, what is worse first.
        environment: Names of settings with both values.
        common: Number of scenarios that are in both.
        has_times: Whether their times could be compared: on one kind of machine alone.
    """

    changes: tuple[Change, ...]
    environment: tuple[tuple[str, str, str], ...]
    common: int
    has_times: bool

    @property
    def is_worse(self) -> bool:
        """Whether anything is worse."""
        return any(change.kind in WORSE for change in self.changes)


def compare_nights(before: Night, now: Night, limits: Limits) -> NightDifference:
    """Compare two nights scenario by scenario.

    Where each has one target, that is what is compared, whatever it is called: two
    checkouts, or two versions of one optimizer.
    """
    old, new = _index(before), _index(now)
    targets = [{key.target for key in rows} for rows in (old, new)]
    if len(targets[0]) == len(targets[1]) == 1 and targets[0] != targets[1]:
        (target,) = targets[1]
        renamed = {replace(key, target=target): row for key, row in old.items()}
        # Two subjects that have no scenario in common are not the same one.
        old = renamed if renamed.keys() & new.keys() else old
    has_times = before.machine == now.machine
    changes = [
        change
        for key in {**old, **new}
        for change in _compare_rows(key, old.get(key), new.get(key), limits, has_times)
    ]
    order = {kind: number for number, kind in enumerate(Kind.__args__)}  # type: ignore[attr-defined]  # a Literal has them
    return NightDifference(
        changes=tuple(sorted(changes, key=lambda change: order[change.kind])),
        environment=compare_environments(before.environment, now.environment),
        common=len(old.keys() & new.keys()),
        has_times=has_times,
    )


def gather_latest(nights: Sequence[Night], keys: Sequence[Key]) -> Night | None:
    """The last run of each of some scenarios as if they were one night.

    A night may run a part of the scenarios, so the last night is not the last run.

    Args:
        nights: The oldest first; the last one lends its environment.
        keys: The scenarios.
    """
    if not nights:
        return None
    wanted = set(keys)
    rows = {r.key: r for night in nights for r in night.rows if r.key in wanted}
    return replace(nights[-1], rows=tuple(rows.values()))


def compare_environments(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[tuple[str, str, str], ...]:
    """Settings that differ, with both values; `-` stands for none.

    Of what one of them does not tell at all nothing is said: where no task came up
    there are no versions.
    """
    told = before.keys() & now.keys()
    old, new = (
        dict(list_settings({name: e[name] for name in e if name in told}))
        for e in (before, now)
    )
    return tuple(
        (name, old.get(name, "-"), new.get(name, "-"))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    )


def _index(night: Night) -> dict[Key, Row]:
    return {row.key: row for row in night.rows}


def _compare_rows(
    key: Key, old: Row | None, new: Row | None, limits: Limits, has_times: bool
) -> Iterator[Change]:
    kind, is_same = _judge_statuses(old, new)
    if kind is not None:
        yield Change(key=key, kind=kind, before=_describe(old), now=_describe(new))
    if old is None or new is None or not is_same or new.status is not Status.PASS:
        return
    yield from _compare_errors(key, old, new, limits)
    if has_times:
        yield from _compare_times(key, old, new, limits)


def _judge_statuses(old: Row | None, new: Row | None) -> tuple[Kind | None, bool]:
    """What changed of the status or the causes, and whether the status is the same."""
    if new is None:
        return "gone", False
    if new.quarantined:
        is_known = old is not None and old.quarantined
        return (None if is_known else "quarantined"), False
    if old is None:
        return ("new failure" if new.status in _BROKEN else "new"), False
    if old.status is new.status and not old.quarantined:
        is_other = set(old.causes) != set(new.causes)
        return ("other cause" if is_other else None), True
    # What left the quarantine and still fails was a known failure and is none now.
    if new.status in _BROKEN:
        is_known = old.status in _BROKEN and not old.quarantined
        return ("other cause" if is_known else "new failure"), False
    weights = _WEIGHT[old.status], _WEIGHT[new.status]
    if weights[0] == weights[1]:
        return None, False
    if weights[0] < weights[1]:
        return "worse", False
    if new.status in NOT_EXECUTED:
        return "gone", False  # nobody knows whether it is any better
    return "fixed" if new.status is Status.PASS and weights[0] > 1 else "better", False


def _compare_errors(key: Key, old: Row, new: Row, limits: Limits) -> Iterator[Change]:
    values = old.error_over_bound, new.error_over_bound
    if values[0] is None or values[1] is None:
        return
    if not (0 < values[0] < math.inf and 0 < values[1] < math.inf):
        return
    ratio = values[1] / values[0]
    kinds: tuple[Kind, Kind] = "nearer to its bound", "farther from its bound"
    texts = [f"{value:.3g}" for value in values]
    yield from _tell_ratio(key, ratio, limits.error_ratio, kinds, texts)


def _compare_times(key: Key, old: Row, new: Row, limits: Limits) -> Iterator[Change]:
    if min(old.seconds, new.seconds) <= 0:
        return
    if abs(new.seconds - old.seconds) < limits.floor_s:
        return
    kinds: tuple[Kind, Kind] = "slower", "faster"
    texts = [f"{row.seconds:.1f} s" for row in (old, new)]
    ratio = new.seconds / old.seconds
    yield from _tell_ratio(key, ratio, limits.time_ratio, kinds, texts)


def _tell_ratio(
    key: Key,
    ratio: float,
    limit: float,
    kinds: tuple[Kind, Kind],
    texts: Sequence[str],
) -> Iterator[Change]:
    if ratio >= limit or ratio <= 1 / limit:
        kind = kinds[0] if ratio > 1 else kinds[1]
        now = f"{texts[1]} ({ratio:.3g} times)"
        yield Change(key=key, kind=kind, before=texts[0], now=now)


def _describe(row: Row | None) -> str:
    if row is None:
        return "-"
    causes = ", ".join(dict.fromkeys(str(cause) for cause in row.causes))
    words = [str(row.status), "quarantined" if row.quarantined else "", causes]
    if not row.causes and row.status is not Status.PASS:
        words.append(row.message.partition("\n")[0])
    return ": ".join(filter(None, [" ".join(filter(None, words[:2])), *words[2:]]))
