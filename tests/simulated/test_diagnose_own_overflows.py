"""Replicas that overflow as their shards do or have to, whatever one device does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import to_array
from overflowing_runs import (
    HELD,
    STEP,
    Overflow,
    change_seen,
    change_trace,
    double,
    is_kernel,
    make_run,
    skip,
    spoil,
)
from training_simulator import BIAS, KERNEL

from distbench.compare.nature.own_overflows import find_own_overflows
from distbench.diagnose.judge import judge
from distbench.diagnose.readings.overflowing import list_parted
from distbench.evidence import Evidence
from distbench.trace import WHOLE, TraceKey
from distbench.verdict import Status


def overflow_on_both(seen: Overflow) -> Evidence:
    """A run of which both sides leave out a step, and one device has Inf in less."""
    evidence = skip(seen)
    start = evidence.reference

    def leave(key: TraceKey, value: Any) -> Any:
        if key.phase in HELD:
            return start.values[replace(key, step=STEP - 1, replica=WHOLE)]
        return spoil(value, (0,)) if is_kernel(key, "local_gradient", WHOLE) else value

    return replace(evidence, reference=change_trace(start, leave))


def test_a_step_that_both_leave_out_is_compared_but_for_what_overflows() -> None:
    evidence = overflow_on_both({0: (0,), 1: (0, 1)})
    assert not list_parted(evidence)
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement.findings

    def go_on(key: TraceKey, value: Any) -> Any:
        return double(value) if is_kernel(key, "variable") else value

    assert change_seen(evidence, go_on).findings[0].variables == (KERNEL,)


def test_who_overflows_there_beyond_its_shard_is_wrong() -> None:
    first = judge(overflow_on_both({0: (0,), 1: (2,)})).findings[0]
    assert (first.code, first.phase) == ("nonfinite", "local_gradient")


@pytest.mark.parametrize(("times", "is_own"), [(2, True), (1, False), (0.5, False)])
def test_n_times_a_share_may_overflow_where_the_share_does_not(
    times: float, is_own: bool
) -> None:
    def multiply(key: TraceKey, value: Any) -> Any:
        if key.phase != "local_gradient":
            return value
        seen = to_array(value) * np.float32(times)
        is_here = is_kernel(key, "local_gradient", 1) and key.step == STEP
        return spoil(seen, (0, 1)) if is_here else seen

    evidence = make_run()
    seen = replace(evidence, observed=change_trace(evidence.observed, multiply, None))
    assert find_own_overflows(seen, {STEP}) == ({STEP} if is_own else set())


def overflow_apart() -> Evidence:
    """A run of two networks that leave out what overflows each for itself.

    The kernel's overflows on both sides, and that of the bias on one device alone.
    """
    seen = {0: (0,)}
    evidence = skip(seen)
    start, taken = make_run().reference, make_run().observed
    infos = taken.by_path

    def take_bias(key: TraceKey, value: Any) -> Any:
        info = infos.get(key.variable)
        is_bias = BIAS in (key.variable, None if info is None else info.owner)
        return taken.values[key] if is_bias and key.phase in HELD else value

    def leave(key: TraceKey, value: Any) -> Any:
        if key.phase in HELD:
            return start.values[replace(key, step=STEP - 1, replica=WHOLE)]
        is_whole = key.phase == "local_gradient" and key.replica == WHOLE
        is_odd = is_whole and key.variable in (KERNEL, BIAS)
        return np.full_like(to_array(value), np.inf) if is_odd else value

    return replace(
        evidence,
        reference=change_trace(evidence.reference, leave),
        observed=change_trace(evidence.observed, take_bias),
        fed=evidence.fed.change_traces(lambda trace: change_trace(trace, take_bias)),
    )


def test_networks_part_each_for_itself() -> None:
    evidence = overflow_apart()
    assert list_parted(evidence) == {STEP}
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement.findings

    def double_bias(key: TraceKey, value: Any) -> Any:
        is_bias = (key.phase, key.variable) == ("variable", BIAS)
        return double(value) if is_bias else value

    assert change_seen(evidence, double_bias).findings[0].variables == (BIAS,)
