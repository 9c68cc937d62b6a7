"""Which case is run when, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar


class Case(Protocol):
    """A case as `scripts/reliability` has them."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    @property
    def enough(self) -> int:
        """What it is to count over all of its runs; 0 where it counts nothing."""
        ...


AnyCase = TypeVar("AnyCase", bound=Case)


def list_runs(
    cases: Sequence[AnyCase], times: int, rows: Sequence[Mapping[str, Any]]
) -> Iterator[AnyCase]:
    """Every case so many times, in turns, or until it has counted enough.

    Args:
        cases: What to run.
        times: How often, where a case counts nothing.
        rows: What has been run, and is added to meanwhile.
    """
    for _ in range(times):
        yield from (case for case in cases if not case.enough)
    for case in cases:
        before = -1
        # A run that counts nothing has gone wrong, and so would the next.
        while before < (count := count_so_far(case, rows)) < case.enough:
            before = count
            yield case


def merge_rows(
    before: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
) -> list[Mapping[str, Any]]:
    """The rows of cases that were run in the place of those before, in their order.

    Args:
        before: The rows of earlier days.
        rows: Those of today.
        names: The cases that there are; rows of others are gone.
    """
    anew = {row["case"] for row in rows}
    found = [*(row for row in before if row["case"] not in anew), *rows]
    order = {name: number for number, name in enumerate(names)}
    found = [row for row in found if row["case"] in order]
    return sorted(found, key=lambda row: order[row["case"]])


def count_so_far(case: Case, rows: Sequence[Mapping[str, Any]]) -> int:
    """What a case has counted in all of its runs: the first of its counts."""
    counts = [row.get("counts", {}) for row in rows if row["case"] == case.name]
    return sum(next(iter(found.values()), 0) for found in counts)
