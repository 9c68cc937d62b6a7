"""Numbers that a replica decides by its own overflow, beside what that spoils."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from gradient_values import to_array
from overflowing_runs import STEP as _STEP
from overflowing_runs import change_trace
from training_simulator import BIAS, KERNEL, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.fed import Fed
from distbench.trace import (
    GRADIENTS,
    INITIAL,
    UPDATED,
    WHOLE,
    Trace,
    TraceKey,
    VariableInfo,
)

_SPOILT = (*GRADIENTS, *UPDATED)
_NUMBERS = {"scale": (512.0, 256.0, 1024.0), "good": (1.0, 0.0, 2.0)}
"""Before that step, what one device makes of them, and what a replica alone does."""


def is_seen(key: TraceKey) -> bool:
    """Whether a program by hand shows it."""
    return key.phase in ("loss", "local_gradient", "variable")


def skip_alone(*, goes_on: bool = False, bias: float = 1.0) -> Evidence:
    """A run whose last replica alone leaves out a step that overflows.

    Args:
        goes_on: Whether the numbers are as wrong in the step after that.
        bias: How many times too large the replicas' bias is after the first step.
    """
    evidence = observe(replicas=2, sparse=False, steps=_STEP + 2)
    reference = evidence.reference
    infos = [
        VariableInfo(
            path=path, role="variable", shape=(), dtype="float32", trainable=False
        )
        for path in _NUMBERS
    ]

    def find_start(key: TraceKey) -> Any:
        return reference.values[replace(key, step=_STEP - 1, replica=WHOLE)]

    def change(trace: Trace, key: TraceKey, value: Any) -> Any:
        """One device skips the step; the first replica takes a sum of infinities."""
        is_ours = trace is evidence.observed
        if is_ours and (key.step, key.phase, key.variable) == (0, "variable", BIAS):
            value = value * np.float32(bias)
        if key.step != _STEP or key.phase == "loss":
            return value
        if key.phase == "local_gradient":
            is_spoilt = key.replica in (WHOLE, 1)
            return np.full_like(to_array(value), np.inf) if is_spoilt else value
        is_taken = is_ours and key.replica == 0
        return np.full_like(value, np.inf) if is_taken else find_start(key)

    def join(trace: Trace) -> Trace:
        values = {k: change(trace, k, v) for k, v in trace.values.items() if is_seen(k)}
        places = {key.replica for key in values if key.phase == "variable"}
        for path, (before, due, seen) in _NUMBERS.items():
            last = seen if trace is evidence.observed else due
            wrong = (_STEP, _STEP + 1) if goes_on else (_STEP,)
            values |= {
                TraceKey(step=step, phase="variable", variable=path, replica=r): (
                    np.float32(last if step in wrong else before)
                )
                for step in range(INITIAL, _STEP + 2)
                for r in places
            }
        kept = [v for v in trace.variables if v.role != "slot"]
        return replace(trace, variables=(*kept, *infos), values=values)

    with np.errstate(all="ignore"):
        return replace(
            evidence,
            reference=join(reference),
            observed=join(evidence.observed),
            twins=tuple(map(join, evidence.twins)),
            fed=Fed(),
        )


def test_what_a_replica_decides_by_its_overflow_is_not_told_beside_it() -> None:
    (only,) = judge(skip_alone()).findings
    assert (only.code, only.step, only.replicas) == ("nonfinite", _STEP, (0,))
    assert KERNEL in only.variables
    assert not _NUMBERS.keys() & {*only.variables}


def test_numbers_that_are_wrong_without_an_overflow_are_told() -> None:
    found = judge(skip_alone(goes_on=True)).findings
    told = {variable for finding in found for variable in finding.variables}
    assert _NUMBERS.keys() <= told


def test_a_mistake_in_what_trains_is_told_beside_it() -> None:
    found = judge(skip_alone(bias=3.0)).findings
    assert {f.step for f in found} == {0, _STEP}
    assert any(BIAS in f.variables and f.step == 0 for f in found)


def test_a_step_is_left_out_though_a_decay_goes_on() -> None:
    """Gradients of 0 leave what one device has, and all replicas took those of one."""
    evidence = skip_alone()

    def move(trace: Trace, share: float) -> Trace:
        values = dict(trace.values)
        for key, _ in trace.select(step=_STEP, phase="variable"):
            start = evidence.reference.get(replace(key, step=_STEP - 1).at(WHOLE))
            if key.variable not in _NUMBERS and start is not None:
                values[key] = to_array(start) * np.float32(share)
            elif key.variable in _NUMBERS:
                values[key] = evidence.reference.values[key.at(WHOLE)]
        return replace(trace, values=values)

    nothing = move(evidence.observed, 0.9)
    ways = ({"kept": [0, 1], "factor": 0.0}, {"kept": [0], "factor": 1.0})
    sums = tuple(replace(nothing, notes={**way, "narrow": ""}) for way in ways)
    decayed = replace(
        evidence,
        reference=move(evidence.reference, 0.9),
        observed=move(evidence.observed, 0.8),
        twins=tuple(move(twin, 0.9) for twin in evidence.twins),
        fed=Fed(sums=sums),
    )
    (only,) = judge(decayed).findings
    assert (only.code, only.step, only.replicas) == ("nonfinite", _STEP, (0, 1))
    assert "one device skips the step" in only.explanation


def test_a_step_is_left_out_though_gradients_of_0_would_move_its_slots() -> None:
    """All replicas weigh the gradient of one that overflows in part as they should."""
    evidence = observe(replicas=2, sparse=False, steps=_STEP + 2)

    def spoil(key: TraceKey, value: Any) -> Any:
        is_first = (key.phase, key.replica) == ("local_gradient", 0)
        if is_first or key.variable != KERNEL or key.phase not in _SPOILT:
            return value
        changed = np.array(to_array(value))
        changed.ravel()[0] = np.nan
        return changed

    def stay(key: TraceKey, value: Any) -> Any:
        if key.phase in UPDATED:
            return evidence.reference.values[replace(key, step=_STEP - 1)]
        return spoil(key, value) if key.phase == "local_gradient" else value

    def decay(key: TraceKey, value: Any) -> Any:
        return value * np.float32(0.9) if key.phase in UPDATED else value

    nothing = change_trace(evidence.observed, decay)
    ways = ({"kept": [0, 1], "factor": 0.0}, {"kept": [0], "factor": 1.0})
    sums = tuple(replace(nothing, notes={**way, "narrow": ""}) for way in ways)
    left = replace(
        evidence,
        reference=change_trace(evidence.reference, stay),
        observed=change_trace(evidence.observed, spoil),
        twins=tuple(change_trace(twin, stay) for twin in evidence.twins),
        fed=Fed(sums=sums),
    )
    findings = judge(left).findings
    assert {(found.code, found.step) for found in findings} == {("nonfinite", _STEP)}
    assert any("one device skips the step" in f.explanation for f in findings)


def test_a_number_that_is_half_of_what_is_due_is_no_mean() -> None:
    """Beside nothing else that is wrong: a scale is halved once for each replica."""
    evidence = observe(replicas=2, sparse=False)
    info = VariableInfo(
        path="scale", role="variable", shape=(), dtype="float32", trainable=False
    )

    def join(trace: Trace) -> Trace:
        values = dict(trace.values)
        for key, _ in trace.select(phase="variable", variable=KERNEL):
            is_wrong = trace is evidence.observed and key.step == _STEP
            held = 512.0 if is_wrong else 1024.0 if key.step == _STEP else 2048.0
            values[replace(key, variable="scale")] = np.float32(held)
        return replace(trace, variables=(*trace.variables, info), values=values)

    (only,) = judge(evidence.change_traces(join)).findings
    assert only.variables == ("scale",)
    assert only.code != "mean-instead-of-sum"
