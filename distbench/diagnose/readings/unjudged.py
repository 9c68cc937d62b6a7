"""What a run's notes say of state that was not judged, and of what metrics show of it.

Each note is one sentence, or `""` where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from distbench.compare.arrays.noise import Noise
from distbench.compare.state.read_as_sums import find_dealt_out, list_in_full
from distbench.details import Compared
from distbench.diagnose.clues.settings import describe_settings
from distbench.diagnose.names import tell_more
from distbench.evidence import Evidence
from distbench.trace import STATE, Phase, Trace, TraceKey, Value
from distbench.trace.numbers import (
    are_equal,
    densify,
    measure_errors,
    measure_finite,
)
from distbench.verdict import Finding

_TOLD = 1e-4
"""What a metric shows is told if it differs by more: rounding leaves less."""


def note_metrics(evidence: Evidence, compared: Sequence[Compared]) -> str:
    """Names metrics that show something else than on one device and were not judged.

    Args:
        evidence: What was seen.
        compared: What was held against what.
    """
    if evidence.tier == "exact":
        return ""  # there metrics start from 0 in each step
    judged = {(c.variable, c.step) for c in compared if c.relation == "result"}
    told = []
    for metric in evidence.observed.metrics:
        shown, due = (
            list_shown(trace, metric.name)
            for trace in (evidence.observed, evidence.reference)
        )
        steps = sorted(
            step
            for step in shown.keys() & due.keys()
            if (metric.name, step) not in judged
        )
        errors = measure_errors(
            np.array([shown[step] for step in steps]),
            np.array([due[step] for step in steps]),
        )
        # Any step tells: in one both may be 0. Where all cancels in one, as in a
        # correlation, others tell how large it may be.
        size = measure_finite(np.array([*due.values()]))
        if np.max(errors, initial=0.0) > _TOLD * size:
            worst = steps[int(np.argmax(errors))]
            told.append(
                f"'{metric.name}' shows {shown[worst]:.6g} in step {worst}, one device "
                f"{due[worst]:.6g}"
            )
    if not told:
        return ""
    more = tell_more(told)
    return (
        f"note: the metric {told[0]}{more}: what it is made of depends on how the "
        "examples are dealt out, so it was not judged"
    )


def list_shown(trace: Trace, name: str) -> dict[int, float]:
    """What goes by a name beside the loss, as a metric, after each step: one number.

    After some steps nothing may be shown, as where several are executed as one.
    """
    found = {
        step: trace.get(TraceKey(step=step, phase="loss", variable=name))
        for step in range(trace.steps)
    }
    return {
        step: float(densify(value))
        for step, value in found.items()
        if value is not None and value.shape == ()
    }


def note_in_full(evidence: Evidence) -> str:
    """Names a variable that is read as N times what one device has."""
    found = list_in_full(evidence)
    if not found:
        return ""
    n = evidence.observed.replicas
    return (
        f"note: '{found[0]}'{tell_more(found)} is read as the sum of its copies, and "
        f"each replica adds all that one device does, so that it reads N = {n} times "
        "as much; where nothing divides that out, let each add a share, or give it "
        "the aggregation ONLY_FIRST_REPLICA"
    )


def note_dealt_out(
    evidence: Evidence, noise: Noise, compared: Sequence[Compared]
) -> str:
    """Names a variable that is read as a sum, and of which shards do not tell the sum.

    Args:
        evidence: What was seen.
        noise: Of the single-device run.
        compared: What was held against what.
    """
    if evidence.tier == "exact":
        return ""  # what copies start a step from is not their own there
    found = find_dealt_out(evidence, noise, {(c.variable, c.step) for c in compared})
    if found is None:
        return ""
    path, step = found
    return (
        f"note: what the replicas' copies of '{path}' gain in step {step} is neither "
        "added up nor on average what one device adds: what it is made of depends on "
        "how the examples are dealt out, so it was not judged"
    )


def note_alone(evidence: Evidence, findings: Sequence[Finding]) -> str:
    """Names what one device has and no replica, or the other way round.

    State of one side alone that moves, and settings that differ where no finding
    tells of them.

    Args:
        evidence: What was seen.
        findings: What is told beside the note.
    """
    here, there = evidence.observed, evidence.reference
    told = []
    for trace, other, who, whom in (
        (there, here, "one device has", "the cluster"),
        (here, there, "the cluster has", "one device"),
    ):
        if paths := _list_moving(trace, _list_state(other)):
            told.append(
                f"{who} '{paths[0]}'{tell_more(paths)}, and {whom} nothing of "
                "that name, so it was compared with nothing"
            )
    settings = describe_settings(evidence)
    if settings and not any(settings in finding.explanation for finding in findings):
        told = [f"{'; '.join(told)}: {settings}" if told else settings]
    return f"note: {'; '.join(told)}" if told else ""


def _list_state(trace: Trace) -> set[str]:
    return {key.variable for key in trace.values if key.phase in STATE}


def _list_moving(trace: Trace, others: Collection[str]) -> list[str]:
    """State that a step changes, but for what goes by some names, sorted."""
    held: dict[tuple[Phase, str, int], Value] = {}
    moving: set[str] = set()
    for key in trace.values:
        if key.phase not in STATE or key.variable in others:
            continue
        value = trace.values[key]
        first = held.setdefault((key.phase, key.variable, key.replica), value)
        if not are_equal(densify(first), densify(value)):
            moving.add(key.variable)
    return sorted(moving)
