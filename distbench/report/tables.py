"""A run's numbers as tables: each can be read as it is, and be drawn as a plot.

The page's plots are drawn from these very tables, so no plot shows what a reader
without JavaScript, or without eyes for colours, does not get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from distbench.details import Compared, Details, Series
from distbench.report.words import (
    format_number,
    join_words,
    name_step,
    number_step,
)
from distbench.trace import PHASES, WHOLE
from distbench.verdict import Finding

Place = TypeVar("Place", tuple[int, str], tuple[str, int])

MOST_ROWS = 40
_MOST_COLUMNS = 64
_LEVELS = (0.01, 1.0, 1e2, 1e4, 1e6)
LEVEL_NAMES = (
    "at most 1 % of the bound",
    "within the bound",
    "up to 100 bounds",
    "up to 10,000",
    "up to a million",
    "beyond, or the bound is 0",
)
_SAME = 1e-6
"""Ratios that differ from 1 by no more are shown apart from those near 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number.

    Attributes:
        text: As it is shown.
        level: Place of its error ÷ bound among `LEVEL_NAMES`; -1 where it is no
            quotient or there is none.
        is_first: Whether it is where things go wrong first.
        tip: What else is known of it.
    """

    text: str = ""
    level: int = -1
    is_first: bool = False
    tip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of numbers under one caption.

    Attributes:
        plot: What is drawn of it: `map` (a cell for each number), `lines` (a line for
            each column), `norms` (a line for each row, those
            of one variable at a time), `bars`,
            or nothing.
        caption: What it shows.
        corner: What the rows are.
        columns: Headings.
        rows: A heading, and a cell for each column.
        left_out: Rows that were too many to be shown.
    """

    plot: Literal["map", "lines", "norms", "bars", ""]
    caption: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    left_out: int = 0


def make_finding_tables(details: Details, finding: Finding) -> list[Table]:
    """What there is to see of a finding, most telling first; empty tables left out."""
    tables = [
        _map_variables(details.compared, finding),
        _map_phases(details.compared, finding),
        _list_wrong(details.compared),
        _count_ratios(details.compared),
        *_draw_losses(details.series),
    ]
    return [table for table in tables if table.rows]


def make_run_tables(details: Details) -> list[Table]:
    """What there is to see of any run."""
    tables = [
        _map_phases(details.compared),
        *_draw_losses(details.series),
        _draw_norms(details.series),
    ]
    return [table for table in tables if table.rows]


def _map_variables(compared: Sequence[Compared], finding: Finding) -> Table:
    """Error ÷ bound of the first wrong phase, by variable and replica."""
    here = [c for c in compared if (c.step, c.phase) == (finding.step, finding.phase)]
    worst = _pick_worst(here, lambda c: (c.variable, c.replica))
    columns = sorted({replica for _, replica in worst})[:_MOST_COLUMNS]
    first = _find_first(finding, worst)
    names = list(dict.fromkeys(name for name, _ in worst))
    heaviest = sorted(
        names,
        key=lambda name: (
            name != finding.variable,
            -max(
                (_weigh(worst[name, r]) for r in columns if (name, r) in worst),
                default=0.0,  # compared on replicas for which there is no room
            ),
        ),
    )
    shown = set(heaviest[:MOST_ROWS])
    return Table(
        plot="map",
        caption=f"error ÷ bound of {finding.phase}, {name_step(finding.step)}",
        corner="variable",
        columns=tuple(map(_name_replica, columns)),
        rows=tuple(
            (
                name or "(loss)",
                tuple(
                    _make_cell(worst.get((name, r)), is_first=(name, r) == first)
                    for r in columns
                ),
            )
            for name in names
            if name in shown
        ),
        left_out=len(names) - len(shown),
    )


def _map_phases(compared: Sequence[Compared], finding: Finding | None = None) -> Table:
    """Error ÷ bound by phase and step, the worst of all variables and replicas."""
    worst = _pick_worst(compared, lambda c: (c.step, c.phase))
    phases = [p for p in PHASES if any(phase == p for _, phase in worst)]
    steps = sorted({step for step, _ in worst})
    first = (finding.step, finding.phase) if finding else None
    return Table(
        plot="map",
        caption="error ÷ bound by step and phase, the worst of each",
        corner="step",
        columns=tuple(phases),
        rows=tuple(
            (
                name_step(step),
                tuple(
                    _make_cell(worst.get((step, p)), is_first=(step, p) == first)
                    for p in phases
                ),
            )
            for step in steps[:MOST_ROWS]
        ),
        left_out=max(0, len(steps) - MOST_ROWS),
    )


def _list_wrong(compared: Sequence[Compared]) -> Table:
    """The comparisons that failed, in causal order."""
    wrong = sorted(
        (c for c in compared if c.wrong),
        key=lambda c: (c.step, PHASES.index(c.phase), c.call, c.variable, c.replica),
    )
    return Table(
        plot="",
        caption="comparisons that failed, in causal order",
        corner="where",
        columns=("compared with", "error", "bound", "error ÷ bound", "ratio"),
        rows=tuple(
            (
                ", ".join(
                    part
                    for part in (
                        name_step(c.step),
                        c.phase,
                        c.variable,
                        _name_replica(c.replica),
                    )
                    if part
                ),
                (
                    Cell(text=c.against),
                    *(
                        Cell(text=format_number(number))
                        for number in (c.error, c.bound, c.error_over_bound, c.ratio)
                    ),
                ),
            )
            for c in wrong[:MOST_ROWS]
        ),
        left_out=max(0, len(wrong) - MOST_ROWS),
    )


def _count_ratios(compared: Sequence[Compared]) -> Table:
    """How often each ratio of observed to expected occurs, right and wrong."""
    counts: dict[tuple[float, str], list[int]] = {}
    for c in compared:
        if c.ratio is not None and c.relation != "replicas":
            counts.setdefault(_name_bin(c.ratio), [0, 0])[c.wrong] += 1
    return Table(
        plot="bars",
        caption="ratios of observed to expected values, in steps of √2",
        corner="ratio",
        columns=("right", "wrong"),
        rows=tuple(
            (label, tuple(Cell(text=str(number)) for number in counts[place, label]))
            for place, label in sorted(counts)
        ),
    )


def _draw_losses(series: Iterable[Series]) -> list[Table]:
    """The loss of each replica beside that of one device; metrics likewise."""
    by_name: dict[str, list[Series]] = {}
    for line in series:
        if line.phase == "loss":
            by_name.setdefault(line.variable, []).append(line)
    tables = []
    for name, lines in by_name.items():
        lines = lines[:_MOST_COLUMNS]
        known = [dict(zip(line.steps, line.values, strict=True)) for line in lines]
        steps = sorted(set().union(*known))
        tables.append(
            Table(
                plot="lines",
                caption=f"{name or 'loss'} of each replica and of one device",
                corner="step",
                columns=tuple(map(_name_line, lines)),
                rows=tuple(
                    (
                        str(step),
                        tuple(
                            Cell(text=f"{values[step]:.7g}" if step in values else "")
                            for values in known
                        ),
                    )
                    for step in steps
                ),
            )
        )
    return tables


def _draw_norms(series: Iterable[Series]) -> Table:
    """Norms of slots and variables; replicas that have the same share a row."""
    shared: dict[tuple[str, bool, tuple[float, ...]], list[Series]] = {}
    steps: set[int] = set()
    for line in series:
        if line.phase != "loss":
            shared.setdefault((line.variable, line.observed, line.values), []).append(
                line
            )
            steps |= set(line.steps)
    names = list(dict.fromkeys(name for name, _, _ in shared))
    columns = sorted(steps)
    rows = []
    for (name, _, _), lines in sorted(
        shared.items(), key=lambda item: (names.index(item[0][0]), not item[0][1])
    ):
        who = _name_line(lines[0])
        if lines[0].observed and len(lines) > 1:
            who = f"replicas {join_words(str(line.replica) for line in lines)}"
        known = dict(zip(lines[0].steps, lines[0].values, strict=True))
        cells = tuple(
            Cell(text=f"{known[step]:.6g}" if step in known else "") for step in columns
        )
        rows.append((name, (Cell(text=who), *cells)))
    return Table(
        plot="norms",
        caption="norms of slots and variables after each step",
        corner="variable",
        columns=("on", *map(number_step, columns)),
        rows=tuple(rows),
    )


def _name_replica(replica: int) -> str:
    """`replica 2`, or `all` for what belongs to all of them together."""
    return "all" if replica == WHOLE else f"replica {replica}"


def _name_line(line: Series) -> str:
    if line.observed:
        return _name_replica(line.replica)
    if line.replica == WHOLE:
        return "one device"
    return f"one device, shard {line.replica}"


def _pick_worst(
    compared: Iterable[Compared], place: Callable[[Compared], Place]
) -> dict[Place, Compared]:
    worst: dict[Place, Compared] = {}
    for c in compared:
        key = place(c)
        if key not in worst or _weigh(c) > _weigh(worst[key]):
            worst[key] = c
    return worst


def _weigh(compared: Compared) -> float:
    """Error ÷ bound; what failed always weighs more than what did not."""
    quotient = compared.error_over_bound
    if math.isnan(quotient):
        quotient = math.inf
    return max(quotient, 1.0 + _SAME) if compared.wrong else min(quotient, 1.0)


def _find_first(
    finding: Finding, worst: Mapping[tuple[str, int], Compared]
) -> tuple[str, int] | None:
    """Where a finding begins: its variable, on the first replica that has it wrong."""
    places = [(finding.variable, r) for r in (*finding.replicas, WHOLE)]
    places += [key for key in worst if key[0] == finding.variable]
    wrong = [key for key in (*places, *worst) if key in worst and worst[key].wrong]
    return wrong[0] if wrong else None


def _make_cell(compared: Compared | None, *, is_first: bool) -> Cell:
    if compared is None:
        return Cell(text="–")
    weight = _weigh(compared)
    return Cell(
        text=format_number(compared.error_over_bound),
        level=sum(weight > level for level in _LEVELS),
        is_first=is_first,
        tip=f"error {format_number(compared.error)}, "
        f"bound {format_number(compared.bound)}, against {compared.against}",
    )


def _name_bin(ratio: float) -> tuple[float, str]:
    """Where a ratio stands on the axis, and what it is called there."""
    if math.isnan(ratio):
        return math.inf, "nan"
    if ratio <= 0:
        return (-math.inf, "negative") if ratio < 0 else (-1e9, "0")
    if math.isinf(ratio):
        return 1e9, "inf"
    place = round(2 * math.log2(ratio))
    if place == 0:
        return (0.0, "1") if abs(ratio - 1) <= _SAME else (0.1, "near 1")
    return float(place), f"{2 ** (place / 2):.3g}"
