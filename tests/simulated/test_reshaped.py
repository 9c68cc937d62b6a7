"""What has another shape on a cluster is not compared, and what is made of it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from training_simulator import Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import (
    INITIAL,
    WHOLE,
    MetricInfo,
    Trace,
    TraceKey,
    VariableInfo,
)
from distbench.trace.reshaped import find_reshaped, leave_out_variables
from distbench.verdict import Status

STEPS = (INITIAL, 0, 1, 2)


def _add_rows(trace: Trace, rows: int, replicas: tuple[int, ...]) -> Trace:
    """With a variable of so many rows, and a metric that is made of it."""
    info = VariableInfo(
        path="rows", role="variable", shape=(rows,), dtype="float32", trainable=False
    )
    values = dict(trace.values)
    for step in STEPS:
        for replica in replicas:
            key = TraceKey(
                step=step, phase="variable", variable="rows", replica=replica
            )
            values[key] = np.full(rows, step, np.float32)
    return replace(
        trace,
        variables=(*trace.variables, info),
        values=values,
        metrics=(MetricInfo(name="shown", state=("rows",)),),
    )


def _make(fault: Fault) -> Evidence:
    evidence = observe(fault, replicas=2, shards=(5, 3))
    return replace(
        evidence,
        observed=_add_rows(evidence.observed, 2, (0, 1)),
        reference=_add_rows(evidence.reference, 1, (WHOLE,)),
    )


def test_variables_of_another_shape_are_found() -> None:
    evidence = _make(Fault())
    found = find_reshaped(evidence.observed, evidence.reference)
    assert found == {"rows": ((2,), (1,))}
    assert not find_reshaped(evidence.reference, evidence.reference)


@pytest.mark.parametrize("factor", [1.0, 2.0], ids=["right", "wrong"])
def test_without_them_the_rest_is_judged(factor: float) -> None:
    evidence = _make(Fault(scale=lambda r, setup: factor))
    paths = find_reshaped(evidence.observed, evidence.reference)
    left = evidence.change_traces(lambda trace: leave_out_variables(trace, paths))
    for trace in (left.observed, left.reference):
        assert all(info.path != "rows" for info in trace.variables)
        assert all(key.variable != "rows" for key in trace.values)
        assert trace.metrics == ()
    judgement = judge(left)
    assert judgement.status is (Status.PASS if factor == 1 else Status.FAIL)
