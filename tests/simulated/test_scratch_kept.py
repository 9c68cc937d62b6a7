"""State that holds a share of each sum, of which the replicas make up that sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_changes import change_evidence
from training_simulator import KERNEL, RIGHT, Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, Value, VariableInfo
from distbench.trace.numbers import densify
from distbench.verdict import Status


def keep(
    evidence: Evidence,
    times: tuple[float, ...],
    *,
    path: str = "kept",
    is_scratch: bool = True,
    decided_by: str = "",
) -> Evidence:
    """A run whose replicas keep their sum times a number, which one device keeps."""
    made = evidence.observed.by_path[KERNEL]
    info = VariableInfo(
        path=path,
        role="variable",
        shape=made.shape,
        dtype=made.dtype,
        trainable=False,
        is_scratch=is_scratch,
        decided_by=decided_by,
    )

    def add(trace: Trace, replicas: tuple[int, ...], times: tuple[float, ...]) -> Trace:
        values = dict(trace.values)
        sums = list(trace.select(phase="reduced_gradient", variable=KERNEL))
        for replica in replicas:
            start = TraceKey(
                step=INITIAL, phase="variable", variable=path, replica=replica
            )
            values[start] = np.zeros(made.shape, made.dtype)
        for key, value in sums:
            if key.replica in replicas:
                at = replace(key, phase="variable", variable=path)
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


def share(evidence: Evidence, **options: Any) -> Evidence:
    """A run whose replicas keep an N-th of each sum."""
    n = evidence.observed.replicas
    return keep(evidence, (1 / n,) * evidence.observed.steps, **options)


def hold(evidence: Evidence, *, also: str | None = None) -> Evidence:
    """With what one device makes of the sum that the replicas keep.

    Args:
        evidence: A run of which replicas keep one.
        also: State of which it then has what the cluster has.
    """
    part = 1 / evidence.observed.replicas
    values: dict[TraceKey, Value] = {}
    for key, due in evidence.reference.select(replica=WHOLE):
        if key.variable == also and key.step != INITIAL:
            values[key] = evidence.observed.values[key.at(0)]
        elif key.variable == KERNEL and key.phase == "reduced_gradient":
            values[key] = np.asarray(part * densify(due))
    notes = {"held": ["kept"]}
    scratch = replace(evidence.reference, values=values, notes=notes)
    return change_evidence(evidence, scratch=scratch)


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "not-held"])
def test_a_mean_that_replicas_add_up_again_is_forgiven(is_held: bool) -> None:
    evidence = share(observe(RIGHT))
    judgement = judge(hold(evidence) if is_held else evidence)
    assert judgement.status is Status.PASS, judgement.findings
    assert "'kept' deviates" in judgement.message
    assert "each step assigns it anew" in judgement.message


def test_a_mean_that_a_later_step_may_go_on_from_is_wrong() -> None:
    judgement = judge(share(observe(RIGHT), is_scratch=False))
    assert [f.variables for f in judgement.findings] == [("kept",)]


def test_what_is_wrong_as_one_device_has_it_then_comes_of_it() -> None:
    """Another state is made of it, and holds an N-th as well."""
    evidence = observe(RIGHT)
    n = evidence.observed.replicas
    parts = (1 / n,) * evidence.observed.steps
    made = keep(evidence, parts, path="made", is_scratch=False)
    told = [
        {v for f in judge(case).findings for v in f.variables}
        for case in (hold(share(made), also="made"), hold(share(made)))
    ]
    assert told == [{"kept", "made"}, {"made"}]


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "not-held"])
def test_a_loss_that_does_not_come_of_it_leaves_it_forgiven(is_held: bool) -> None:
    """Without that of one device nobody knows what comes of it."""
    evidence = share(observe(Fault(loss=lambda loss, replica: 2 * loss)))
    found = judge(hold(evidence) if is_held else evidence).findings
    assert found[0].phase == "loss"
    more = set() if is_held else {"kept"}
    assert {v for f in found for v in f.variables} == {"", *more}


def test_it_excuses_nothing_that_is_wrong_besides() -> None:
    evidence = observe(Fault(scale=lambda replica, setup: 1.5))
    judgement = judge(hold(share(evidence)))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "loss"


def test_what_it_may_decide_is_undecided() -> None:
    judgement = judge(hold(share(observe(RIGHT), decided_by="loop.py:7 (Minimum)")))
    assert judgement.status is Status.UNDECIDABLE, judgement.findings
    assert "but loop.py:7 (Minimum) may treat other numbers" in judgement.message


def test_what_decides_by_one_says_nothing_of_another() -> None:
    """Of two that hold an N-th, the first leads to nothing that decides."""
    limit = "loop.py:7 (Minimum)"
    judgement = judge(share(share(observe(RIGHT)), path="limited", decided_by=limit))
    assert judgement.status is Status.UNDECIDABLE, judgement.findings
    assert "slot of 'kept' deviates" in judgement.message
    assert "slot of 'limited' is another one" in judgement.message
    assert f"but {limit} may treat other numbers" in judgement.message
