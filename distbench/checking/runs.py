"""Makes the runs of a verdict from what was planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from distbench.checking.plan import Planned
from distbench.evidence import Tier
from distbench.trace import Trace
from distbench.verdict import Run, Status

OPEN = (Status.PASS, Status.VACUOUS, Status.UNDECIDABLE)
"""What a run ended with that has found nothing."""
_OWN = ("cluster", "path", "workload")
"""Parts of a scenario that a run has under the same names."""


def make_run(
    item: Planned,
    tier: Tier,
    status: Status,
    seconds: float,
    *,
    reference: Trace | None = None,
    **others: Any,
) -> Run:
    """One run of a planned scenario.

    Args:
        item: The scenario.
        tier: The tier in which it was compared.
        status: How it ended.
        seconds: How long it took.
        reference: The single-device run, where there is one: it says how the batches
            were shared out, in place of what was asked for.
        others: Further fields of `Run`.
    """
    scenario = item.scenario
    split, resized = scenario.split, {}
    if reference is not None:
        split = reference.shards or split
        resized = {str(step): list(s) for step, s in reference.resized.items()}
    return Run(
        scenario=scenario.id,
        cluster=scenario.cluster,
        path=scenario.path,
        workload=scenario.workload,
        tier=tier,
        status=status,
        seconds=seconds,
        setup={
            **{n: v for n, v in asdict(scenario).items() if n not in _OWN},
            "faults": list(scenario.faults),
            "split": list(split),
            "resized": resized,
        },
        **others,
    )


def end_uncompared(
    item: Planned,
    tiers: Sequence[Tier],
    status: Status,
    *,
    seconds: float = 0.0,
    **others: Any,
) -> Iterator[Run]:
    """The runs of a scenario that ended before anything was compared, one a tier."""
    for tier in tiers:
        yield make_run(item, tier, status, seconds / len(tiers), **others)


def add_note(run: Run, note: str) -> Run:
    """A run whose message says something more."""
    # What was done on purpose is a sentence, and stands in front.
    mark = " " if run.message.endswith(".") else "; "
    return replace(run, message=mark.join(filter(None, (run.message, note))))


def add_notes(runs: Iterable[Run], note: str) -> tuple[Run, ...]:
    """Runs whose messages say something more, but for those that were left out."""
    return tuple(
        run if run.status is Status.SKIPPED else add_note(run, note) for run in runs
    )


def measure_time(runs: Iterable[Run]) -> float:
    """How long some runs took in all, in seconds."""
    return sum(run.seconds for run in runs)


def add_time(runs: Sequence[Run], seconds: float) -> tuple[Run, ...]:
    """Runs that took more time, all together."""
    each = seconds / max(len(runs), 1)
    return tuple(replace(run, seconds=run.seconds + each) for run in runs)


def tell_injury(injury: str, message: str) -> str:
    """A run's message, after what was done to one of its tasks on purpose."""
    return f"On purpose {injury}. {message}".strip() if injury else message
