"""Runs of which one step overflows, on the replicas or on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from gradient_values import to_array
from training_simulator import KERNEL, observe

from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey

STEP = 1
ALONE = {0: (0,), 1: (0, 1)}
"""Elements of the kernel's gradient that are beyond the dtype, of each shard alone."""
HELD = ("slot", "variable", "iterations")
Overflow = dict[int, tuple[int, ...]]
Change = Callable[[TraceKey, Any], Any]


def change_trace(trace: Trace, change: Change, step: int | None = STEP) -> Trace:
    values = {
        key: change(key, value) if step in (None, key.step) else value
        for key, value in trace.values.items()
    }
    return replace(trace, values=values)


def is_kernel(key: TraceKey, phase: str, *replicas: int) -> bool:
    is_here = not replicas or key.replica in replicas
    return (key.phase, key.variable) == (phase, KERNEL) and is_here


def is_early(key: TraceKey) -> bool:
    """Whether it is before the sum, or a count."""
    return key.phase in (*COMPUTED, "iterations")


def spoil(value: Any, elements: tuple[int, ...]) -> Any:
    changed = np.array(to_array(value))
    changed.ravel()[list(elements)] = np.inf
    return changed


def make_run(tier: str = "bounded") -> Evidence:
    evidence = observe(replicas=2, sparse=False, steps=STEP + 2, tier=tier)
    subject = replace(evidence.subject, guards=True)
    return replace(evidence, subject=subject)


def skip(seen: Overflow, evidence: Evidence | None = None) -> Evidence:
    """A run whose replicas leave out a step that one device takes.

    Args:
        seen: Elements that overflow on each replica.
        evidence: The run with the step.
    """
    evidence = make_run() if evidence is None else evidence
    start, every = evidence.reference, sorted({e for own in seen.values() for e in own})

    def overflow_alone(key: TraceKey, value: Any) -> Any:
        is_own = is_kernel(key, "local_gradient", 0, 1)
        return spoil(value, ALONE[key.replica]) if is_own else value

    def leave(key: TraceKey, value: Any) -> Any:
        if is_kernel(key, "local_gradient"):
            return spoil(value, seen.get(key.replica, ()))
        if is_kernel(key, "reduced_gradient") or is_kernel(key, "applied_gradient"):
            return spoil(value, tuple(every))
        if key.phase in HELD:
            return start.values[replace(key, step=STEP - 1, replica=WHOLE)]
        return value

    return replace(
        evidence,
        reference=change_trace(evidence.reference, overflow_alone),
        observed=change_trace(evidence.observed, leave),
        fed=evidence.fed.change_traces(lambda trace: change_trace(trace, leave)),
    )


def change_seen(
    evidence: Evidence, change: Change, step: int | None = STEP
) -> Judgement:
    return judge(
        replace(evidence, observed=change_trace(evidence.observed, change, step))
    )


def overflow_on_one_device(tier: str = "bounded", *, is_fed: bool = True) -> Evidence:
    """A run of which one device leaves out a step, for the whole batch overflows.

    Args:
        tier: Its tier.
        is_fed: Whether it takes the step where it is given the replicas' sums.
    """
    evidence = make_run(tier)
    before = evidence.reference

    def leave(key: TraceKey, value: Any) -> Any:
        if key.phase in HELD:
            return before.values[replace(key, step=STEP - 1, replica=WHOLE)]
        is_whole = is_kernel(key, "local_gradient", WHOLE)
        return np.full_like(to_array(value), np.inf) if is_whole else value

    fed = evidence.fed
    if not is_fed:
        fed = fed.change_traces(lambda trace: change_trace(trace, leave))
    reference = change_trace(evidence.reference, leave)
    return replace(evidence, reference=reference, fed=fed)


def double(value: Any) -> Any:
    return value * np.float32(2)
