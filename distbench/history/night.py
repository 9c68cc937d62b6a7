"""One night as a history keeps it: a row for each scenario, tier and variant."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from distbench.scenario import Scenario
from distbench.split import split_unevenly
from distbench.verdict import (
    NOT_EXECUTED,
    Finding,
    Run,
    Status,
    Verdict,
    combine_statuses,
)

_VARYING = ("dtype", "examples", "loss_weight", "seed", "steps", "keras", "jit")
"""Settings that a scenario's id does not say."""
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(Scenario)}
_MESSAGE_LENGTH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What makes a scenario the same one in another night.

    Attributes:
        target: The subject; a path in the current folder is relative to it.
        scenario: The scenario's id.
        tier: `exact`, `bounded` or `free`; empty for a test.
        variant: Settings that the id does not say, where they are not the defaults:
            `dtype=float64 examples=64`.
        copy: Counts from 0 what one verdict has several times.
    """

    target: str
    scenario: str
    tier: str
    variant: str = ""
    copy: int = 0

    def __str__(self) -> str:
        parts = [self.scenario, f"[{self.tier}]" if self.tier else "", self.variant]
        if self.copy:
            parts.append(f"({self.copy + 1})")
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What is kept of a finding."""

    code: str
    phase: str
    variable: str

    def __str__(self) -> str:
        where = f" of {self.variable}" if self.variable else ""
        return f"{self.code} in {self.phase}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one scenario ended in one night.

    Attributes:
        key: Which scenario.
        status: How it ended.
        seconds: Wall time.
        error_over_bound: Of the comparison nearest to its bound, or farthest beyond;
            None where nothing was compared, or it is no number.
        causes: Its findings, but for warnings.
        message: Why it ended so, shortened.
        quarantined: Whether it failed and is known to.
    """

    key: Key
    status: Status
    seconds: float
    error_over_bound: float | None = None
    causes: tuple[Cause, ...] = ()
    message: str = ""
    quarantined: bool = False

    @property
    def counts(self) -> bool:
        """Whether it was executed."""
        return self.status not in NOT_EXECUTED

    @property
    def is_red(self) -> bool:
        """Whether it is no pass and nothing excuses it."""
        return self.counts and self.status is not Status.PASS and not self.quarantined


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """All that ran together.

    Attributes:
        started: When, in UTC.
        target: What was checked.
        environment: What it ran on.
        rows: One for each key.
        id: Its number in the history; 0 for one that is in none.
    """

    started: datetime
    target: str
    environment: Mapping[str, Any]
    rows: tuple[Row, ...]
    id: int = 0

    @property
    def status(self) -> Status:
        """The status over all rows."""
        return combine_statuses(
            Status.PASS if row.quarantined else row.status for row in self.rows
        )

    @property
    def machine(self) -> str:
        """What times can be compared on."""
        return _name_machine(self.environment)


def _name_machine(environment: Mapping[str, Any]) -> str:
    """The kind of machine as one text: times on two of the same may be compared.

    Versions are no part of it: what an upgrade made slower is to be seen.
    """
    return json.dumps(environment.get("machine", {}), sort_keys=True)


def make_night(
    verdict: Verdict, started: datetime | None = None, root: Path | None = None
) -> Night:
    """What a history keeps of a verdict.

    Args:
        verdict: What came out.
        started: When it began; by default when the verdict says, or else now.
        root: The folder to which paths of targets are made relative, so that another
            checkout has the same keys; the current folder by default.
    """
    base = f"{root or Path.cwd()}/"
    seen: Counter[Key] = Counter()
    rows = []
    for run in verdict.runs:
        key = _make_key(run, verdict.target, base)
        rows.append(_make_row(run, dataclasses.replace(key, copy=seen[key])))
        seen[key] += 1
    when = started or verdict.begun or datetime.now(timezone.utc)
    return Night(
        started=when.astimezone(timezone.utc),
        target=_shorten(verdict.target, base),
        environment=verdict.environment,
        rows=tuple(rows),
    )


def _shorten(target: str, base: str) -> str:
    """A target, or several, relative to a folder."""
    return ", ".join(each.removeprefix(base) for each in target.split(", "))


def _make_key(run: Run, target: str, base: str) -> Key:
    return Key(
        target=_shorten(str(run.setup.get("target", target)), base),
        scenario=run.scenario,
        tier=run.tier,
        variant=_name_variant(run.setup),
    )


def _name_variant(setup: Mapping[str, Any]) -> str:
    words = [
        f"{name}={setup[name]}"
        for name in _VARYING
        if name in setup and setup[name] != _DEFAULTS[name]
    ]
    split = setup.get("split")
    if isinstance(split, Sequence) and not _is_usual(split):
        words.append(f"split={','.join(map(str, split))}")
    return " ".join(words)


def _is_usual(split: Sequence[Any]) -> bool:
    """Whether nobody asked for these shares: the bench's own, or Keras' even ones."""
    sizes = [size for size in split if isinstance(size, int)]
    if len(sizes) < len(split) or len(sizes) < 2 or sum(sizes) < len(sizes):
        return not split or len(split) == 1
    return len(set(sizes)) == 1 or tuple(sizes) == split_unevenly(
        sum(sizes), len(sizes)
    )


def _make_row(run: Run, key: Key) -> Row:
    worst = run.worst.error_over_bound if run.worst else None
    return Row(
        key=key,
        status=run.status,
        seconds=run.seconds if math.isfinite(run.seconds) else 0.0,
        error_over_bound=None if worst is None or math.isnan(worst) else worst,
        causes=tuple(_make_cause(f) for f in run.findings if not f.warning),
        message=run.message[:_MESSAGE_LENGTH],
        quarantined=run.quarantined,
    )


def _make_cause(finding: Finding) -> Cause:
    return Cause(code=finding.code, phase=finding.phase, variable=finding.variable)
