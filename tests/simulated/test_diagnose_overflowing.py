"""Shares of a mean that overflow where the mean itself does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import to_array
from training_simulator import KERNEL, observe

from distbench.diagnose.judge import judge
from distbench.diagnose.readings.overflowing import list_overflowing
from distbench.evidence import Evidence
from distbench.fed import Fed
from distbench.trace import WHOLE, Trace, TraceKey
from distbench.verdict import Status

_STEP = 1
_ALONE = {0: (0,), 1: (0, 1)}
"""Elements of the kernel's gradient that are beyond the dtype, of each shard alone."""


def skip(seen: dict[int, tuple[int, ...]], *, later: float = 1.0) -> Evidence:
    """A run whose replicas leave out a step that one device takes.

    Args:
        seen: Elements that overflow on each replica.
        later: How many times too large the kernel is after the next step.
    """
    evidence = observe(replicas=2, sparse=False, steps=_STEP + 2)
    reference = evidence.reference

    def spoil(value: Any, elements: tuple[int, ...]) -> Any:
        changed = np.array(to_array(value))
        changed.ravel()[list(elements)] = np.inf
        return changed

    def change(trace: Trace, key: TraceKey, value: Any) -> Any:
        is_ours = trace is evidence.observed
        if is_ours and (key.step, key.phase, key.variable) == (
            _STEP + 1,
            "variable",
            KERNEL,
        ):
            return value * np.float32(later)
        if key.step != _STEP or key.replica == WHOLE or key.phase == "loss":
            return value
        if key.phase == "local_gradient":
            found = seen if is_ours else _ALONE
            is_kernel = key.variable == KERNEL
            return spoil(value, found.get(key.replica, ())) if is_kernel else value
        if not is_ours:
            return value
        if key.phase in ("slot", "variable", "iterations"):
            return reference.values[replace(key, step=_STEP - 1, replica=WHOLE)]
        every = sorted({*seen.get(0, ()), *seen.get(1, ())})
        return spoil(value, tuple(every)) if key.variable == KERNEL else value

    def join(trace: Trace) -> Trace:
        values = {key: change(trace, key, v) for key, v in trace.values.items()}
        return replace(trace, values=values)

    return replace(
        evidence, reference=join(reference), observed=join(evidence.observed)
    )


def test_a_step_that_a_share_of_a_mean_leaves_out_is_not_judged() -> None:
    judgement = judge(skip({1: (0,)}))
    assert judgement.status is Status.PASS
    assert f"in step {_STEP} either" in judgement.message


@pytest.mark.parametrize("seen", [{1: (2,)}, {0: (1,)}, _ALONE])
def test_one_that_overflows_for_another_reason_is(
    seen: dict[int, tuple[int, ...]],
) -> None:
    """In another element than the shard's own, and as the shard's own mean does."""
    judgement = judge(skip(seen))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].step == _STEP


def test_a_mistake_in_another_step_is_told() -> None:
    (found,) = judge(skip({1: (0,)}, later=1.5)).findings
    assert (found.step, found.variables) == (_STEP + 1, (KERNEL,))


def overflow_on_one_device(*, is_fed: bool) -> Evidence:
    """A run of which one device leaves out a step, for the mean overflows.

    Args:
        is_fed: Whether it takes the step where it is given the replicas' sums.
    """
    evidence = observe(replicas=2, sparse=False, steps=_STEP + 2)
    reference = evidence.reference
    replay = evidence.fed.replays["reduced_gradient"]

    def leave(trace: Trace, key: TraceKey, value: Any) -> Any:
        if key.step != _STEP:
            return value
        if key.phase in ("slot", "variable", "iterations"):
            return reference.values[replace(key, step=_STEP - 1, replica=WHOLE)]
        is_spoilt = trace is reference and key.phase == "local_gradient"
        if is_spoilt and (key.variable, key.replica) == (KERNEL, WHOLE):
            return np.full_like(to_array(value), np.inf)
        return value

    def join(trace: Trace) -> Trace:
        values = {key: leave(trace, key, v) for key, v in trace.values.items()}
        return replace(trace, values=values)

    fed = evidence.fed if is_fed else Fed(replays={"reduced_gradient": join(replay)})
    return replace(evidence, reference=join(reference), fed=fed)


def test_a_step_that_one_device_leaves_out_whatever_it_is_given_is_not_judged() -> None:
    evidence = overflow_on_one_device(is_fed=False)
    assert list_overflowing(evidence) == {_STEP}
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement.findings
    assert f"in step {_STEP} either" in judgement.message


def test_one_that_it_takes_with_the_replicas_sums_is() -> None:
    assert not list_overflowing(overflow_on_one_device(is_fed=True))
