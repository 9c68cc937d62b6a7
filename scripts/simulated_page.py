"""docs/simulated-reductions.md, from the figures of `scripts/simulate_reduction`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from measured import ROOT, describe_measured, write_paragraph

PAGE = ROOT / "docs" / "simulated-reductions.md"
Row = Mapping[str, Any]
_HEAD = """\
<!-- Written by scripts/simulate_reduction. -->

# Sums over more replicas than one machine has

`scripts/simulate_reduction` replays the sum of a gradient over up to 4,096 replicas in
NumPy, rounding after each addition: along a *ring*, in a *tree* of pairs,
*hierarchical* (a ring in each host of eight, then a tree), and *all to one*, one
replica after the other. Each is held to the
[bounds and tests](tolerances.md#the-sum-over-the-replicas) that a verdict rests on, by
the same functions. The addends of an element *cancel* (drawn around 0 with standard
deviation 1), are *alike* (around 1 with 1/4), or *equal* on all replicas.
"""
_SEEN = """\
## What they still see

One replica is left out of the exact sum. The table has the largest number of replicas,
of 2, 4, 8, ..., up to which that is called wrong in all draws: by the bound of the
elements alone, and by all tests, the fitted ratio and the sum of errors among them.

| dtype | addends | elements alone | all tests |
|---|---|---|---|"""
_TIGHT = """\
## How tight they are

Error over bound of the elements, the largest and the median one, for each reduction;
*tests* is the larger share of what ratio and sum of errors may be, of the worst
reduction, and *off* the norm of its error over that of the exact sum.
"""


def make_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the page."""
    rows = document["rows"]
    yield from _HEAD.splitlines()
    yield ""
    yield from describe_measured(document)
    yield from ("## Where the bounds hold", "")
    yield from write_paragraph(_tell_alarms(rows))
    yield from _SEEN.splitlines()
    for dtype, addends, here in _group(rows):
        alone = _find_most(here, "lost replica seen by elements")
        both = _find_most(here, "lost replica seen")
        yield f"| {dtype} | {addends} | {alone:,} | {both:,} |"
    yield ""
    yield from write_paragraph(_tell_deciding(rows))
    yield from _TIGHT.splitlines()
    for dtype, addends, here in _group(rows):
        yield ""
        yield from _make_table(dtype, addends, here)


def _group(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    for dtype, addends in dict.fromkeys((r["dtype"], r["addends"]) for r in rows):
        found = [r for r in rows if (r["dtype"], r["addends"]) == (dtype, addends)]
        yield dtype, addends, found


def _tell_alarms(rows: Sequence[Row]) -> str:
    sums = sum(row["sums"] for row in rows)
    found = [one for row in rows for one in row["reductions"].values()]
    wrong = sum(one["wrong"] for one in found)
    largest = max(one["largest"] for one in found)
    tests = max(one["tests"] for one in found)
    still = max(rows, key=_measure_off)
    return (
        f"{wrong} of {sums:,} sums were called wrong. The largest error of an element "
        f"was {largest:.2f} of its bound, the largest deviation of a ratio or a sum of "
        f"errors {tests:.2f} of what it may be. That includes sums that stand still: "
        f"with {still['replicas']:,} addends in {still['dtype']} that are "
        f"{still['addends']} {_name_worst(still)} is {_measure_off(still):.0%} off by "
        "rounding alone, since what is added is less than half of a unit "
        "in the last place. Such a sum is no use for training, but that is the dtype's "
        "doing and no mistake of the program's."
    )


def _tell_deciding(rows: Sequence[Row]) -> str:
    parts = []
    for dtype, addends, here in _group(rows):
        alone = _find_most(here, "lost replica seen by elements")
        both = _find_most(here, "lost replica seen")
        if both > alone:
            span = f"{2 * alone:,} to {both:,}" if 2 * alone < both else f"{both:,}"
            parts.append(f"{dtype}, {addends}: {span}")
    return (
        "For these numbers only the ratio and the sum of errors can decide: "
        f"{'; '.join(parts)}. With more replicas nothing does, as what one of them "
        "changes is less than what rounding may do; a run says `undecidable` then, and "
        "not `pass`."
    )


def _find_most(rows: Sequence[Row], seen: str) -> int:
    """The largest number up to which all draws were seen; 1 where none was."""
    most = 1
    for row in rows:
        if row[seen] * len(row["reductions"]) < row["sums"]:
            break
        most = row["replicas"]
    return most


def _make_table(dtype: str, addends: str, rows: Sequence[Row]) -> Iterator[str]:
    names = list(rows[0]["reductions"])
    yield f"### {dtype}, {addends}"
    yield ""
    yield f"| replicas | nu | {' | '.join(names)} | tests | off |"
    yield f"|{'---|' * (len(names) + 4)}"
    for row in rows:
        found = row["reductions"]
        cells = [f"{one['largest']:.2g}, {one['median']:.1g}" for one in found.values()]
        tests = max(one["tests"] for one in found.values())
        yield (
            f"| {row['replicas']:,} | {row['nu']:.1g} | {' | '.join(cells)} | "
            f"{tests:.2g} | {_measure_off(row):.1g} |"
        )


def _measure_off(row: Row) -> float:
    return float(max(one["off"] for one in row["reductions"].values()))


def _name_worst(row: Row) -> str:
    found = row["reductions"]
    return str(max(found, key=lambda name: found[name]["off"]))
