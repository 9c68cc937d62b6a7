"""What moves before it fails: error / bound and seconds against the window.

Both are ratios, so they are judged by their logarithms. A drift is a ratio to the
median of the earlier runs that is at least the limit's, and beyond their noise. The
noise is taken from the steps between one run and the next: their median, scaled to a
standard deviation. One odd run does not move it, and neither does a slow creep, which
would make the distances from the median large and so hide itself.

A machine that is busy is slow in all that it does. So times are divided first by what
the scenarios of a night have in common, and that is judged as a whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from distbench.history.limits import Limits
from distbench.history.night import Key, Night, Row
from distbench.verdict import Status

_SIGMA_OF_STEP = 1.4826 / math.sqrt(2)
"""Of independent normal numbers the median of |a - b| is 0.6745 sqrt(2) sigma."""
_MANY = 8
"""Scenarios from which on their common factor is the night's, and none of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A number that moved.

    Attributes:
        key: The scenario; None for the whole night.
        what: Which number.
        before: Median of the earlier runs.
        now: The last one; of times the fastest of those that confirm it.
        ratio: By how much it moved; of times without what the whole night moved by.
        runs: How many earlier runs there are.
        upgrade: Versions that changed since those runs, as `tensorflow 2.20 -> 2.21`.
    """

    key: Key | None
    what: Literal["error/bound", "seconds"]
    before: float
    now: float
    ratio: float
    runs: int
    upgrade: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaky:
    """A scenario that fails now and then."""

    key: Key
    failed: int
    runs: int


def find_drifts(nights: Sequence[Night], limits: Limits) -> tuple[Drift, ...]:
    """What moved in the last of these nights.

    Args:
        nights: Nights on one kind of machine, the oldest first.
        limits: How far something has to move to be reported.
    """
    nights = nights[-limits.window :]
    passed = {
        key: {night: row for night, row in line.items() if row.status is Status.PASS}
        for key, line in _line_up(nights).items()
        if line[len(nights) - 1].status is Status.PASS
    }
    times = {
        key: {night: row.seconds for night, row in line.items() if row.seconds > 0}
        for key, line in passed.items()
    }
    upgrade = _describe_upgrade(nights)
    return (
        *_find_slower(times, limits, upgrade),
        *_find_nearer(passed, limits, upgrade),
    )


def find_flaky(nights: Sequence[Night], limits: Limits) -> tuple[Flaky, ...]:
    """Scenarios that fail in some of the nights and pass in others.

    One that failed once and never passed again is broken, and one that was mended is
    mended: a flaky one turned at least twice.
    """
    found = []
    for key, line in _line_up(nights[-limits.window :]).items():
        failed = [row.status is not Status.PASS for row in line.values() if row.counts]
        turns = sum(a != b for a, b in itertools.pairwise(failed))
        if len(failed) >= limits.least and turns > 1:
            lowest, highest = limits.flaky
            if lowest <= sum(failed) / len(failed) <= highest:
                found.append(Flaky(key=key, failed=sum(failed), runs=len(failed)))
    return tuple(found)


def _describe_upgrade(nights: Sequence[Night]) -> str:
    """Versions of the last night that the earlier ones did not have."""
    if len(nights) < 2:
        return ""
    now, first = nights[-1].environment, nights[0].environment
    names = ("tensorflow", "tf_keras", "keras", "numpy", "python")
    return ", ".join(
        f"{name} {first[name]} -> {now[name]}"
        for name in names
        if first.get(name) and now.get(name) and first[name] != now[name]
    )


def _line_up(nights: Sequence[Night]) -> dict[Key, dict[int, Row]]:
    """The runs of each scenario of the last night, by the number of the night."""
    lines: dict[Key, dict[int, Row]] = {
        row.key: {} for night in nights[-1:] for row in night.rows if row.counts
    }
    for number, night in enumerate(nights):
        for row in night.rows:
            if row.key in lines:
                lines[row.key][number] = row
    return lines


def _find_nearer(
    lines: Mapping[Key, Mapping[int, Row]], limits: Limits, upgrade: str
) -> Iterable[Drift]:
    """Scenarios whose error came nearer to its bound."""
    for key, line in lines.items():
        *earlier, last = (line[night].error_over_bound for night in sorted(line))
        usable = [v for v in earlier if v is not None and 0 < v < math.inf]
        if last is None or not 0 < last < math.inf or len(usable) < limits.least:
            continue
        before = _Baseline.of(usable)
        ratio = last / before.middle
        if before.is_left_by(ratio, limits.error_ratio, limits.spread):
            yield Drift(
                key=key,
                what="error/bound",
                before=before.middle,
                now=last,
                ratio=ratio,
                runs=len(usable),
                upgrade=upgrade,
            )


def _find_slower(
    times: Mapping[Key, Mapping[int, float]], limits: Limits, upgrade: str
) -> Iterable[Drift]:
    """The whole night, if it is slower, and scenarios that are slower than it is.

    Args:
        times: Seconds by scenario and number of the night.
        limits: How far something has to move to be reported.
        upgrade: Versions that changed.
    """
    usable = {
        key: line
        for key, line in times.items()
        if len(line) >= limits.least + limits.confirm
    }
    common = _find_common(usable, limits)
    if common:
        total, judged = _judge_line(common, limits)
        if judged.is_left_by(total, limits.time_ratio, limits.spread):
            yield Drift(
                key=None,
                what="seconds",
                before=sum(median(_split(x, limits)[0]) for x in usable.values()),
                now=sum(min(_split(x, limits)[1]) for x in usable.values()),
                ratio=total,
                runs=judged.runs,
                upgrade=upgrade,
            )
    for key, line in usable.items():
        own = {night: x / common.get(night, 1.0) for night, x in line.items()}
        ratio, judged = _judge_line(own, limits)
        earlier, last = _split(line, limits)
        grown_s = judged.middle * (ratio - 1)
        if grown_s >= limits.floor_s and judged.is_left_by(
            ratio, limits.time_ratio, limits.spread
        ):
            yield Drift(
                key=key,
                what="seconds",
                before=median(earlier),
                now=min(last),
                ratio=ratio,
                runs=len(earlier),
                upgrade=upgrade,
            )


def _find_common(
    times: Mapping[Key, Mapping[int, float]], limits: Limits
) -> dict[int, float]:
    """By how much each night was slower than usual, whatever ran in it.

    The median over the scenarios of each one's ratio to its own median; 1 in nights in
    which too few ran to tell the night's part from theirs. Empty if all are such.
    """
    ratios: dict[int, list[float]] = {}
    for line in times.values():
        middle = median(_split(line, limits)[0])
        for night, seconds in line.items():
            ratios.setdefault(night, []).append(seconds / middle)
    if all(len(found) < _MANY for found in ratios.values()):
        return {}
    return {
        night: median(found) if len(found) >= _MANY else 1.0
        for night, found in sorted(ratios.items())
    }


def _split(
    line: Mapping[int, float], limits: Limits
) -> tuple[Sequence[float], Sequence[float]]:
    """The earlier runs, and the last ones that all have to be slow."""
    values = [line[night] for night in sorted(line)]
    return values[: -limits.confirm], values[-limits.confirm :]


def _judge_line(line: Mapping[int, float], limits: Limits) -> tuple[float, _Baseline]:
    """By how much the last runs are slower, and what the earlier ones were like."""
    earlier, last = _split(line, limits)
    base = _Baseline.of(earlier)
    return min(last) / base.middle, base


@dataclass(frozen=True, slots=True, kw_only=True)
class _Baseline:
    """What the earlier runs of a scenario were like."""

    middle: float
    sigma: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> _Baseline:
        logs = [math.log(value) for value in values]
        step = median(abs(a - b) for a, b in itertools.pairwise(logs))
        return cls(
            middle=math.exp(median(logs)), sigma=_SIGMA_OF_STEP * step, runs=len(logs)
        )

    def is_left_by(self, ratio: float, limit: float, spread: float) -> bool:
        return ratio >= limit and math.log(ratio) > spread * self.sigma
