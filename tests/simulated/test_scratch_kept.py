"""State that holds a share of each sum, of which the replicas make up that sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from training_simulator import KERNEL, RIGHT, Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.verdict import Status


def keep(
    evidence: Evidence, times: tuple[float, ...], *, is_scratch: bool = True
) -> Evidence:
    """A run whose replicas keep their sum times a number, which one device keeps."""
    made = evidence.observed.by_path[KERNEL]
    info = VariableInfo(
        path="kept",
        role="variable",
        shape=made.shape,
        dtype=made.dtype,
        trainable=False,
        is_scratch=is_scratch,
    )

    def add(trace: Trace, replicas: tuple[int, ...], times: tuple[float, ...]) -> Trace:
        values = dict(trace.values)
        sums = list(trace.select(phase="reduced_gradient", variable=KERNEL))
        for replica in replicas:
            start = TraceKey(
                step=INITIAL, phase="variable", variable="kept", replica=replica
            )
            values[start] = np.zeros(made.shape, made.dtype)
        for key, value in sums:
            if key.replica in replicas:
                at = replace(key, phase="variable", variable="kept")
                values[at] = np.asarray(times[key.step] * value, made.dtype)
        return replace(trace, values=values, variables=(*trace.variables, info))

    n = evidence.observed.replicas
    ones = (1.0,) * len(times)
    return replace(
        evidence,
        observed=add(evidence.observed, tuple(range(n)), times),
        reference=add(evidence.reference, (WHOLE,), ones),
        twins=tuple(add(twin, (WHOLE,), ones) for twin in evidence.twins),
        starts=None,
    )


def test_a_mean_that_replicas_add_up_again_is_forgiven() -> None:
    evidence = observe(RIGHT)
    n = evidence.observed.replicas
    judgement = judge(keep(evidence, (1 / n,) * evidence.observed.steps))
    assert judgement.status is Status.PASS, judgement.findings
    assert "'kept' deviates" in judgement.message
    assert "each step assigns it anew" in judgement.message


def test_a_mean_that_a_later_step_may_go_on_from_is_wrong() -> None:
    evidence = observe(RIGHT)
    n = evidence.observed.replicas
    times = (1 / n,) * evidence.observed.steps
    judgement = judge(keep(evidence, times, is_scratch=False))
    assert [f.variables for f in judgement.findings] == [("kept",)]


@pytest.mark.parametrize("number", [0, 1], ids=["another-part", "in-one-step"])
def test_what_is_not_the_part_that_adds_up_is_wrong(number: int) -> None:
    evidence = observe(RIGHT)
    steps, n = evidence.observed.steps, evidence.observed.replicas
    times = [(0.7,) * steps, (1 / n, *(1.0,) * (steps - 1))][number]
    judgement = judge(keep(evidence, times))
    assert {v for f in judgement.findings for v in f.variables} == {"kept"}


def test_it_excuses_nothing_that_is_wrong_besides() -> None:
    evidence = observe(Fault(scale=lambda replica, setup: 1.5))
    n = evidence.observed.replicas
    judgement = judge(keep(evidence, (1 / n,) * evidence.observed.steps))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "loss"
