"""Steps in which the shares of replicas overflow, or the whole batch, and not both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import to_array
from training_simulator import KERNEL, observe

from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.overflowing import list_parted
from distbench.evidence import Evidence
from distbench.fed import Fed
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey
from distbench.verdict import Status

_STEP = 1
_ALONE = {0: (0,), 1: (0, 1)}
"""Elements of the kernel's gradient that are beyond the dtype, of each shard alone."""
_STATE = ("slot", "variable", "iterations")
Overflow = dict[int, tuple[int, ...]]
Change = Callable[[TraceKey, Any], Any]


def change_trace(trace: Trace, change: Change, step: int | None = _STEP) -> Trace:
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
    evidence = observe(replicas=2, sparse=False, steps=_STEP + 2, tier=tier)
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
        return spoil(value, _ALONE[key.replica]) if is_own else value

    def leave(key: TraceKey, value: Any) -> Any:
        if is_kernel(key, "local_gradient"):
            return spoil(value, seen.get(key.replica, ()))
        if is_kernel(key, "reduced_gradient") or is_kernel(key, "applied_gradient"):
            return spoil(value, tuple(every))
        if key.phase in _STATE:
            return start.values[replace(key, step=_STEP - 1, replica=WHOLE)]
        return value

    return replace(
        evidence,
        reference=change_trace(evidence.reference, overflow_alone),
        observed=change_trace(evidence.observed, leave),
        fed=evidence.fed.change_traces(lambda trace: change_trace(trace, leave)),
    )


def change_seen(
    evidence: Evidence, change: Change, step: int | None = _STEP
) -> Judgement:
    return judge(
        replace(evidence, observed=change_trace(evidence.observed, change, step))
    )


@pytest.mark.parametrize("seen", [{1: (0,)}, _ALONE])
def test_a_step_that_an_overflowing_share_leaves_out_is_not_compared(
    seen: Overflow,
) -> None:
    """Of fewer elements than the shard's own mean, and of the same ones."""
    judgement = judge(skip(seen))
    assert judgement.status is Status.PASS, judgement.findings
    assert f"in step {_STEP} either" in judgement.message


@pytest.mark.parametrize("seen", [{1: (2,)}, {0: (1,)}])
def test_one_that_overflows_where_its_shard_does_not_is(
    seen: Overflow,
) -> None:
    judgement = judge(skip(seen))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].step == _STEP


def test_who_leaves_nothing_out_on_one_device_has_to_step_on() -> None:
    """As where it is asked, and as it was given what the replicas have."""
    evidence = skip({1: (0,)})
    asked = replace(evidence, fed=Fed())
    left = replace(evidence.subject, guards=False)
    assert list_parted(asked) == list_parted(replace(evidence, subject=left)) == {_STEP}
    assert not list_parted(replace(asked, subject=left))


def test_a_replica_without_examples_has_nothing_that_overflows() -> None:
    """What it divides by 0 spoils its shard alone as well."""
    evidence = skip({1: (0,)})
    resized = {_STEP: (sum(evidence.reference.shards), 0)}
    reference = replace(evidence.reference, resized=resized)
    assert not list_parted(replace(evidence, reference=reference))


def test_copies_have_to_be_equal_all_the_same() -> None:
    """One replica leaves the step out, and the other one takes it."""

    def go_on(key: TraceKey, value: Any) -> Any:
        return value * np.float32(1.5) if is_kernel(key, "variable", 1) else value

    judgement = change_seen(skip({0: (0,)}), go_on)
    assert judgement.status is Status.FAIL
    assert KERNEL in judgement.findings[0].variables


def test_nothing_may_be_handed_on_for_what_overflows() -> None:
    """The sum of the other replicas' gradients."""
    evidence = skip({0: (0,)})
    own = {
        key.variable: value
        for key, value in evidence.observed.select(
            step=_STEP, phase="local_gradient", replica=1
        )
    }

    def hand_on(key: TraceKey, value: Any) -> Any:
        return own[key.variable] if key.phase == "reduced_gradient" else value

    judgement = change_seen(evidence, hand_on)
    first = judgement.findings[0]
    assert (first.code, first.phase) == ("nonfinite", "reduced_gradient")


def test_a_mistake_in_another_step_is_told() -> None:
    def enlarge(key: TraceKey, value: Any) -> Any:
        return value * np.float32(1.5) if is_kernel(key, "variable") else value

    (found,) = change_seen(skip({1: (0,)}), enlarge, _STEP + 1).findings
    assert (found.step, found.variables) == (_STEP + 1, (KERNEL,))


def overflow_on_one_device(tier: str = "bounded", *, is_fed: bool = True) -> Evidence:
    """A run of which one device leaves out a step, for the whole batch overflows.

    Args:
        tier: Its tier.
        is_fed: Whether it takes the step where it is given the replicas' sums.
    """
    evidence = make_run(tier)
    before = evidence.reference

    def leave(key: TraceKey, value: Any) -> Any:
        if key.phase in _STATE:
            return before.values[replace(key, step=_STEP - 1, replica=WHOLE)]
        is_whole = is_kernel(key, "local_gradient", WHOLE)
        return np.full_like(to_array(value), np.inf) if is_whole else value

    fed = evidence.fed
    if not is_fed:
        fed = fed.change_traces(lambda trace: change_trace(trace, leave))
    reference = change_trace(evidence.reference, leave)
    return replace(evidence, reference=reference, fed=fed)


@pytest.mark.parametrize("is_fed", [True, False])
def test_a_step_that_one_device_leaves_out_is_not_compared(is_fed: bool) -> None:
    evidence = overflow_on_one_device(is_fed=is_fed)
    assert list_parted(evidence) == {_STEP}
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement.findings
    assert f"in step {_STEP} either" in judgement.message


def test_its_sums_have_to_be_those_of_the_replicas() -> None:
    def halve(key: TraceKey, value: Any) -> Any:
        return value / np.float32(2) if is_kernel(key, "reduced_gradient") else value

    first = change_seen(overflow_on_one_device(), halve).findings[0]
    assert (first.code, first.step) == ("mean-instead-of-sum", _STEP)


def test_an_infinite_sum_of_finite_gradients_is_not_to_be_stepped_along() -> None:
    """Whatever one device makes of that sum."""

    def overflow(key: TraceKey, value: Any) -> Any:
        return value if is_early(key) else np.full_like(to_array(value), np.inf)

    evidence = overflow_on_one_device()
    fed = evidence.fed.change_traces(lambda trace: change_trace(trace, overflow))
    first = change_seen(replace(evidence, fed=fed), overflow).findings[0]
    assert (first.code, first.phase) == ("nonfinite", "reduced_gradient")


def test_infinite_state_is_wrong_though_it_follows_from_what_was_seen() -> None:
    """Where one device is no measure of gradients, and comes to Inf with the sums."""

    def overflow(key: TraceKey, value: Any) -> Any:
        return value if is_early(key) else np.full_like(to_array(value), np.inf)

    evidence = make_run()
    fed = evidence.fed.change_traces(lambda trace: change_trace(trace, overflow))
    measure = replace(evidence.measure, known=COMPUTED)
    judgement = change_seen(replace(evidence, fed=fed, measure=measure), overflow)
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].code == "nonfinite"


@pytest.mark.parametrize("part", [overflow_on_one_device, None])
def test_a_free_run_is_judged_until_each_goes_its_own_way(part: Any) -> None:
    """What replicas hold from there on is something else, and right."""
    evidence = part("free") if part else skip({1: (0,)}, make_run("free"))
    assert list_parted(evidence) == set(range(_STEP, _STEP + 2))

    def go_on(key: TraceKey, value: Any) -> Any:
        return value * np.float32(1.5) if key.phase == "variable" else value

    judgement = change_seen(evidence, go_on, _STEP + 1)
    assert judgement.status is Status.UNDECIDABLE, judgement.findings
    assert f"in step {_STEP} either" in judgement.message
    judgement = change_seen(evidence, go_on, _STEP - 1)
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].step == _STEP - 1
