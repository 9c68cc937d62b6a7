"""Traces and what two of them have in common, on the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from distbench.compare.arrays.likeness import Status
from distbench.compare.recorded.places import Place, RunDifference
from distbench.errors import count_things
from distbench.escape import escape_controls
from distbench.report.words import (
    format_number,
    join_words,
    name_step,
    number_step,
)
from distbench.trace import (
    INITIAL,
    WHOLE,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    get_numbers,
)

_WIDE = 110
"""Columns of a terminal in which all of a table's fit beside a variable's name."""
_NAME_WIDTH = 14
_STYLES = {"equal": "green", "near": "green", "missing": "yellow"}


def render_trace(
    trace: Trace, values: Sequence[tuple[TraceKey, Value]], width: int = _WIDE
) -> Table:
    """One row for each value.

    Args:
        trace: What was recorded.
        values: What of it to show.
        width: Columns of the terminal: a narrow one has less numbers.
    """
    shown = [True, width >= _WIDE, width >= _WIDE, True]
    table = Table(
        title=Text(escape_controls(_describe_trace(trace))),
        title_justify="left",
        box=None,
        padding=_choose_padding(width),
    )
    _add_places(table)
    table.add_column("shape", no_wrap=True)
    table.add_column("dtype", no_wrap=True)
    for name in compress(("norm", "min", "max", "mean"), shown):
        table.add_column(name, justify="right", no_wrap=True)
    for key, value in values:
        array = get_numbers(value)
        if trace.digested and key.phase != "loss":
            digest = array.tobytes().hex()
            table.add_row(*_name_place(key), "", "digest", digest)
            continue
        shape = str(list(array.shape))
        if isinstance(value, SparseRows):
            shape = f"{len(value.indices)} rows of {list(value.shape)}"
        table.add_row(
            *_name_place(key),
            shape,
            array.dtype.name,
            *map(format_number, compress(_sum_up(array), shown)),
        )
    return table


def render_value(key: TraceKey, value: Value) -> RenderableType:
    """One value with all that it holds, as far as a screen takes it."""
    place = " ".join(part for part in _name_place(key) if part)
    lines = [Text(escape_controls(place))]
    if isinstance(value, SparseRows):
        lines.append(Text(f"rows {np.array2string(value.indices)}"))
    lines.append(Text(np.array2string(get_numbers(value), separator=", ")))
    return Group(*lines)


def _describe_trace(trace: Trace) -> str:
    """Name, replicas, steps and what it was recorded under, in one line."""
    steps = sorted({key.step for key in trace.values} - {INITIAL})
    word = "replica" if trace.replicas == 1 else "replicas"
    parts = [f"{trace.replicas} {word}", _name_steps(steps)]
    for note in ("strategy", "optimizers"):
        known = trace.notes.get(note, ())
        names = [known] if isinstance(known, str) else known
        if isinstance(names, Sequence) and names:
            parts.append(join_words(str(name) for name in names))
    return f"{trace.name}: {', '.join(parts)}"


def render_comparison(
    a: Trace,
    b: Trace,
    comparison: RunDifference,
    *,
    reduced: Sequence[tuple[str, str]] = (),
    rows: int = 20,
    width: int = _WIDE,
) -> RenderableType:
    """What two traces have in common, and where they first differ.

    Args:
        a: The trace of the first run.
        b: That of the second run.
        comparison: What came out.
        reduced: By run, what the reduced gradient is where they first differ.
        rows: How many places are listed at most.
        width: Columns of the terminal: a narrow one has less numbers.
    """
    parts: list[RenderableType] = [
        Text(escape_controls(f"A  {_describe_trace(a)}")),
        Text(escape_controls(f"B  {_describe_trace(b)}")),
        *_list_remarks(comparison),
        Text(),
    ]
    first = comparison.first
    if first is None:
        parts.append(Text(_say_alike(comparison), style="green"))
    else:
        parts.append(Text(escape_controls(_say_first(comparison, first)), "bold red"))
        parts += [Text(f"   In {run} it is {words}.") for run, words in reduced]
    shown = [p for p in comparison.places if p.status in ("different", "missing")]
    if shown:
        parts += [Text(), _make_table(shown[:rows], width)]
    if len(shown) > rows:
        parts.append(Text(f"and {len(shown) - rows} more (--rows)", style="dim"))
    parts += [Text(), Text(_count(comparison))]
    return Group(*parts)


def _list_remarks(comparison: RunDifference) -> Iterator[Text]:
    for path, other in comparison.renamed.items():
        yield Text(escape_controls(f"   '{path}' of A is taken for '{other}' of B"))
    if comparison.left_out:
        steps = _name_steps(comparison.left_out)
        yield Text(f"   only one of the two recorded {steps}")
    for run, key in comparison.drifting.items():
        text = f"   replicas of {run} hold other values of '{key.variable}'"
        yield Text(escape_controls(f"{text} from {name_step(key.step)} on"), "yellow")


def _say_alike(comparison: RunDifference) -> str:
    if not comparison.count("near") and not comparison.count("different"):
        return "Equal bit by bit."
    near = [p.likeness for p in comparison.places if p.status == "near"]
    noise = sum(likeness.is_noise for likeness in near)
    near = [likeness for likeness in near if not likeness.is_noise]
    ulps = max((likeness.ulps for likeness in near), default=0.0)
    relative = max((likeness.relative for likeness in near), default=0.0)
    text = (
        f"Equal but for rounding: errors of at most {format_number(ulps)} units in the "
        f"last place of the largest element, {format_number(relative)} of it."
    )
    if noise:
        text += f" {noise} gradients are nothing but rounding and were not compared."
    undone = [place for place in comparison.places if place.undone]
    if undone:
        phases = dict.fromkeys(place.key.phase for place in undone)
        text += f" What differs in {join_words(phases)} does not show in what follows."
    return text


def _say_first(comparison: RunDifference, first: Place) -> str:
    alike = [
        place
        for place in comparison.places
        if place.counts and place.key.at(WHOLE) == first.key.at(WHOLE)
    ]
    same = [place.key.replica for place in alike]
    key = first.key
    where = f"{name_step(key.step)}, {key.phase}"
    if key.variable:
        where += f" of '{key.variable}'"
    if key.replica == WHOLE and first.how:
        where += f", {first.how} over the replicas"
    elif key.replica != WHOLE:
        word = "replica" if len(same) == 1 else "replicas"
        where += f", {word} {join_words(map(str, same))}"
    if first.lacks:
        return f"First difference: {where}: {first.lacks} has no value here."
    likeness = first.likeness
    if math.isnan(likeness.error):
        return f"First difference: {where}: other bits."
    ratios = dict.fromkeys(
        f"{place.likeness.ratio:.6g}"
        for place in alike
        if place.likeness.ratio is not None
    )
    ratio = f"ratio {join_words(ratios)} (A to B), " if ratios else ""
    return (
        f"First difference: {where}: {ratio}largest error "
        f"{format_number(likeness.error)}, {format_number(likeness.relative)} of the "
        "largest value."
    )


def _make_table(places: Sequence[Place], width: int) -> Table:
    held = [True, True, width >= _WIDE, True]
    table = Table(box=None, padding=_choose_padding(width))
    _add_places(table)
    table.add_column("status", min_width=len("different"))
    for name in compress(("ratio", "error", "relative", "ulps"), held):
        table.add_column(name, justify="right", no_wrap=True)
    for place in places:
        likeness = place.likeness
        status = f"missing in {place.lacks}" if place.lacks else place.status
        if place.undone:
            status = f"{status}, undone"
        if likeness.undecided:
            status += f", {count_things(likeness.undecided, 'element')} left out"
        numbers = compress(
            (likeness.ratio, likeness.error, likeness.relative, likeness.ulps), held
        )
        table.add_row(
            *_name_place(place.key, place.how),
            Text(status, style=_STYLES.get(place.status, "red")),
            *(
                ["-"] * sum(held)
                if place.lacks or math.isnan(likeness.error)
                else map(format_number, numbers)
            ),
        )
    return table


def _choose_padding(width: int) -> tuple[int, int, int, int]:
    return (0, 1, 0, 1 if width >= _WIDE else 0)


def _count(comparison: RunDifference) -> str:
    statuses: tuple[Status, ...] = ("equal", "near", "different", "missing")
    words = ("equal bit by bit", "equal but for rounding", "different", "missing")
    counts = [
        f"{number} {word}"
        for status, word in zip(statuses, words, strict=True)
        if (number := comparison.count(status))
    ]
    return f"{len(comparison.places)} places: {', '.join(counts)}"


def _add_places(table: Table) -> None:
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("variable", overflow="fold", min_width=_NAME_WIDTH)
    table.add_column("replica", justify="right", no_wrap=True)


def _name_place(key: TraceKey, how: str = "") -> tuple[str, str, str, str]:
    variable = key.variable + (f" (call {key.call})" if key.call else "")
    replica = (how or "all") if key.replica == WHOLE else str(key.replica)
    return number_step(key.step), key.phase, escape_controls(variable), replica


def _name_steps(steps: Sequence[int]) -> str:
    if not steps:
        return "no steps"
    if len(steps) == 1:
        return f"step {steps[0]}"
    if list(steps) == list(range(steps[0], steps[-1] + 1)):
        return f"steps {steps[0]} to {steps[-1]}"
    return f"steps {join_words(map(str, steps))}"


def _sum_up(array: npt.NDArray[np.generic]) -> list[float | None]:
    wide = np.asarray(array, np.float64)
    if not wide.size:
        return [None] * 4
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(np.sum(wide * wide)))
        return [norm, float(wide.min()), float(wide.max()), float(wide.mean())]
