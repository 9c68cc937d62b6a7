"""The cases of scripts/benchmark.py: one registration for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmark_gains import CLUSTER
from benchmark_measures import (
    ALIKE,
    COLD,
    IMPORTS,
    LARGE,
    OF_SIZE,
    SERIES,
    SHARED,
    WARM,
    Samples,
    measure_compare,
    measure_fresh,
    measure_gains,
    measure_scale,
    measure_scenarios,
    measure_series,
    measure_taps,
    measure_task_memory,
    measure_workers,
    take_turns,
)
from benchmark_program import train, train_by_adam, train_unconverted
from benchmark_suite import PROCESSES, VERDICTS
from measure_check import SUBJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is measured side by side.

    Attributes:
        name: What `--only` takes.
        title: What it is, for the page.
        measure: Takes the number of rounds; returns a sample of each side for each.
            The first side is what the others are divided by.
        rounds: How many.
        unit: Of the samples.
        compared: Whether the sides do the same, so that their ratio says something.
    """

    name: str
    title: str
    measure: Callable[[int], Samples]
    rounds: int = 7
    unit: str = "s"
    compared: bool = True


def _list_cases() -> tuple[Case, ...]:
    runs = "a fresh cluster, three steps of one variable"
    return (
        Case(
            name="imports",
            title="what starts often",
            measure=partial(take_turns, IMPORTS),
        ),
        Case(
            name="cold",
            title=f"`distbench check {Path(SUBJECT).name}` on `mwms:2`, from the shell",
            measure=partial(take_turns, COLD),
            rounds=5,
        ),
        Case(
            name="warm",
            title="one more check of it in the same process",
            measure=partial(take_turns, WARM),
            rounds=5,
        ),
        Case(
            name="shared",
            title=f"a check of it on {', '.join(f'`{spec}`' for spec in ALIKE)}",
            measure=partial(take_turns, SHARED),
            rounds=5,
        ),
        Case(
            name="models",
            title="a check of models that people train, on `mirrored:2`",
            measure=partial(take_turns, OF_SIZE),
            rounds=2,
        ),
        Case(
            name="suite",
            title=f"`pytest scenarios/ -n {PROCESSES}`, for each {VERDICTS} verdicts",
            measure=measure_scenarios,
            rounds=1,
        ),
        *(
            Case(
                name=f"fresh-{n}",
                title=f"{n} workers: {runs}",
                measure=partial(measure_fresh, n, train),
                rounds=5,
            )
            for n in (2, 4, 8)
        ),
        Case(
            name="plain-2",
            title="2 workers: a fresh cluster, three steps that AutoGraph leaves alone",
            measure=partial(measure_fresh, 2, train_unconverted),
            rounds=10,
        ),
        Case(
            name="adam-2",
            title="2 workers: a fresh cluster, three steps of Adam on one variable",
            measure=partial(measure_fresh, 2, train_by_adam),
            rounds=10,
        ),
        Case(
            name="series",
            title=f"{SERIES} in a row on 2 workers: {runs}",
            measure=partial(measure_series, 2),
            rounds=3,
        ),
        *(
            Case(
                name=f"workers-{n}",
                title=f"{n} workers: {runs}",
                measure=partial(measure_workers, n),
                rounds=3,
            )
            for n in (16, 32, 64)
        ),
        Case(
            name="gains",
            title=f"processor time of a check of `{Path(SUBJECT).name}` on "
            f"`{CLUSTER}`, without one of what makes tasks cheap",
            measure=measure_gains,
            rounds=10,
        ),
        Case(
            name="memory",
            title="memory after three steps, 4 workers",
            measure=partial(measure_task_memory, 4),
            rounds=3,
            unit="MiB",
        ),
        *(
            Case(
                name=f"taps-{size}",
                title=f"a step of an MLP of {size} parameters, batch 256, 2 replicas",
                measure=partial(measure_taps, layers),
                rounds=20,
            )
            for size, layers in (
                ("1e4", (64, 128, 10)),
                ("1e6", (512, 1600, 100)),
                ("1e7", LARGE),
            )
        ),
        Case(
            name="compare",
            title="judging a check of 2 replicas and 3 steps, for each GB recorded",
            measure=measure_compare,
            rounds=3,
        ),
        Case(
            name="scale",
            title="a check of 1e7 parameters, 8 replicas and 20 steps",
            measure=measure_scale,
            rounds=1,
            unit="GB",
            compared=False,
        ),
    )


CASES = _list_cases()
