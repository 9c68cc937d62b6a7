"""What a report shows of a run besides its verdict: every comparison, series, logs.

Plain data, with no array in it. It is no part of a verdict's JSON unless it is asked
for: a suite run by several processes sends it to the one that writes the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One observed value against one expected value.

    Attributes:
        step: Step number; -1 before the first step.
        call: Which `apply_gradients` call of the step.
        phase: Phase of the observed value.
        variable: Path of the variable, `""` for the loss.
        replica: Replica, or -1 for a sum over the replicas.
        relation: `reference`, `follows`, `added`, `replicas`, `led`, `average`, `total`
            or `result`; of steps in flight `orders`.
        against: Name of what it was compared with.
        error: Largest absolute error.
        bound: What the worst element was allowed.
        error_over_bound: Largest quotient over all tests.
        ratio: Fitted ratio of observed to expected.
        wrong: Whether a test failed.
    """

    step: int
    call: int
    phase: str
    variable: str
    replica: int
    relation: str
    against: str
    error: float
    bound: float
    error_over_bound: float
    ratio: float | None
    wrong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A number after each step.

    Attributes:
        phase: `loss`, or `slot` or `variable` of which it is the Euclidean norm.
        variable: Path of the variable, `""` for the loss.
        replica: Replica, or -1 for the global batch.
        observed: Whether the cluster showed it; one device if not.
        steps: Step numbers; -1 before the first step.
        values: One for each step.
    """

    phase: str
    variable: str
    replica: int
    observed: bool
    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What a report shows of a run besides its verdict.

    Attributes:
        compared: The comparisons, in the order in which they were made.
        series: Losses, and norms of slots and variables.
        logs: The last lines of each task's output, by its name.
        left_out: Comparisons and series that were too many to be kept.
    """

    compared: tuple[Compared, ...] = ()
    series: tuple[Series, ...] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0


COMPARED = tuple(f.name for f in fields(Compared))
SERIES = tuple(f.name for f in fields(Series))


def details_to_json(details: Details) -> dict[str, Any]:
    """A document of rows; each text stands in it once, as its number in `names`."""
    names: dict[str, int] = {}

    def make_row(item: object, columns: Iterable[str]) -> list[Any]:
        return [encode(getattr(item, column)) for column in columns]

    def encode(value: Any) -> Any:
        if isinstance(value, str):
            return names.setdefault(value, len(names))
        if isinstance(value, tuple):
            return [encode(part) for part in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return int(value) if isinstance(value, bool) else value

    return {
        "compared": [make_row(item, COMPARED) for item in details.compared],
        "series": [make_row(item, SERIES) for item in details.series],
        "names": list(names),
        "logs": dict(details.logs),
        "left_out": details.left_out,
    }


def details_from_json(document: Mapping[str, Any]) -> Details:
    """What `details_to_json` made a document of.

    Raises:
        KeyError, ValueError, IndexError, TypeError: It is no such document.
    """
    names = document["names"]

    def read(row: list[Any], columns: tuple[str, ...]) -> dict[str, Any]:
        found = dict(zip(columns, row, strict=True))
        for column, value in found.items():
            if column in ("phase", "variable", "relation", "against"):
                found[column] = names[value]
            elif column in ("wrong", "observed"):
                found[column] = bool(value)
            elif column == "steps":
                found[column] = tuple(value)
            elif column == "values":
                found[column] = tuple(float(number) for number in value)
            elif isinstance(value, str):
                found[column] = float(value)
        return found

    return Details(
        compared=tuple(Compared(**read(r, COMPARED)) for r in document["compared"]),
        series=tuple(Series(**read(r, SERIES)) for r in document["series"]),
        logs=dict(document["logs"]),
        left_out=document["left_out"],
    )
