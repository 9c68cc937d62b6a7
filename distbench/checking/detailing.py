"""Picks what a report shows of a run, and bounds how much that is.

Of a large model a run makes many thousand comparisons: a report shows where it is wrong
first, and of what is right as much as can be looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby

import numpy as np

from distbench.details import Compared, Details, Series
from distbench.evidence import Evidence
from distbench.flight import Flight
from distbench.trace import SHOWN, Phase, Trace, TraceKey, Value
from distbench.trace.numbers import densify, measure_norm

_MOST_COMPARED = 4000
_MOST_NUMBERS = 20_000
_NORMS: tuple[Phase, ...] = ("slot", "variable")


def keep_details(
    seen: Evidence | Flight | None,
    compared: Sequence[Compared],
    logs: Mapping[str, str],
) -> Details:
    """What a report shows of a run.

    Args:
        seen: What was observed and expected; None where a run did not get so far.
        compared: Every comparison that was made of it.
        logs: The last lines of each task's output.
    """
    kept = _pick_compared(compared)
    series = _sort_series(seen, compared) if seen is not None else []
    ends = accumulate(len(line.values) for line in series)
    shown = series[: bisect_right(list(ends), _MOST_NUMBERS)]
    return Details(
        compared=kept,
        series=tuple(shown),
        logs={name: text for name, text in logs.items() if text.strip()},
        left_out=len(compared) - len(kept) + len(series) - len(shown),
    )


def _pick_compared(compared: Sequence[Compared]) -> tuple[Compared, ...]:
    """All, or those that are wrong first and then those nearest to their bounds."""
    if len(compared) <= _MOST_COMPARED:
        return tuple(compared)

    def rank(number: int) -> tuple[bool, float]:
        item = compared[number]
        return not item.wrong, item.step if item.wrong else -item.error_over_bound

    chosen = sorted(range(len(compared)), key=rank)[:_MOST_COMPARED]
    return tuple(compared[number] for number in sorted(chosen))


def _sort_series(seen: Evidence | Flight, compared: Sequence[Compared]) -> list[Series]:
    """The losses, then the state of variables that are wrong, then that of others."""
    wrong = {item.variable for item in compared if item.wrong}
    reference = seen.starts if isinstance(seen, Flight) else seen.reference
    with np.errstate(all="ignore"):
        lines = [
            *_list_series(seen.observed, observed=True),
            *_list_series(reference, observed=False),
        ]
    return sorted(
        lines, key=lambda line: (line.phase != "loss", line.variable not in wrong)
    )


def _list_series(trace: Trace, *, observed: bool) -> Iterator[Series]:
    """One line for each loss and each norm of state."""

    def name_line(item: tuple[TraceKey, Value]) -> tuple[str, str, int]:
        return item[0].phase, item[0].variable, item[0].replica

    values = [
        item
        for phase in ("loss", *_NORMS)
        for item in trace.select(phase=phase)
        # A metric of that name, or the loss, is there as well.
        if not item[0].variable.startswith(SHOWN)
    ]
    values.sort(key=lambda item: (name_line(item), item[0].step))
    for (phase, variable, replica), group in groupby(values, key=name_line):
        members = list(group)
        yield Series(
            phase=phase,
            variable=variable,
            replica=replica,
            observed=observed,
            steps=tuple(key.step for key, _ in members),
            values=tuple(
                _measure(value, is_loss=phase == "loss") for _, value in members
            ),
        )


def _measure(value: Value, *, is_loss: bool) -> float:
    array = densify(value)
    if is_loss and array.size == 1:
        return float(array.reshape(()))
    return measure_norm(array)
