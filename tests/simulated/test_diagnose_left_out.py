"""Gradients that one device leaves out of its update, or divides by what it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import to_array
from planted_case import check_passed
from training_simulator import (
    TABLE,
    Fault,
    Gradients,
    Setup,
    Simulation,
    observe,
)
from wrong_steps import (
    divide_rows,
    divide_rows_each,
    on,
    overwrite,
    overwrite_each,
    reduce_some,
)

from distbench.diagnose.judge import judge
from distbench.trace import SparseRows


def clear(gradients: Gradients) -> Gradients:
    return {path: 0.0 * to_array(value) for path, value in gradients.items()}


def keep_first(parts: list[Gradients], step: int) -> list[Gradients]:
    """Only the first replica goes on to train."""
    del step
    return [{path: to_array(v) for path, v in parts[0].items()} for _ in parts]


def test_slices_that_one_device_does_not_hand_on_are_no_addends() -> None:
    evidence = observe(
        Fault(reduce=keep_first), alone=clear, sparse=True, replicas=3, steps=2
    )
    observed = evidence.observed
    handed = {
        replace(key, phase="reduced_gradient"): np.zeros_like(to_array(value))
        for key, value in observed.select(phase="local_gradient")
    }
    apart = replace(observed, values=handed)
    findings = judge(change_evidence(evidence, apart=apart)).findings
    assert findings[0].phase == "reduced_gradient"
    assert not any(finding.code.startswith("sparse") for finding in findings)


def test_slices_of_which_one_device_keeps_one_for_a_row_are_told_apart() -> None:
    """It makes the same mistake, and does not come to the same by it."""

    evidence = observe(
        Fault(reduce=reduce_some([TABLE], overwrite_each)),
        alone=on([TABLE], lambda value: overwrite([value])),
        sparse=True,
        replicas=3,
    )
    handed = {
        replace(key, phase="reduced_gradient"): to_array(
            overwrite([value]) if key.variable == TABLE else value
        )
        for key, value in evidence.observed.select(phase="local_gradient")
    }
    apart = replace(evidence.observed, values=handed)
    # Another order of examples leaves other slices, and is no measure of rounding.
    twins = (evidence.reference,) * 2
    first = judge(change_evidence(evidence, apart=apart, twins=twins)).findings[0]
    told = (first.code, first.phase, first.variable)
    assert told == ("sparse-duplicates", "reduced_gradient", TABLE), first.explanation


@pytest.mark.parametrize("divide", [divide_rows, divide_rows_each])
def test_rows_may_be_divided_by_the_number_of_all_slices(divide: Callable) -> None:
    alone = on([TABLE], lambda value: divide_rows([value]))
    evidence = observe(
        Fault(reduce=reduce_some([TABLE], divide)), alone=alone, sparse=True, replicas=3
    )
    own = dict(evidence.observed.select(phase="local_gradient"))
    rows = {k: v for k, v in own.items() if isinstance(v, SparseRows)}
    counts = {
        step: sum(v.count_rows() for k, v in rows.items() if k.step == step)
        for step in range(evidence.observed.steps)
    }
    handed = {
        replace(key, phase="reduced_gradient"): to_array(value)
        / (np.maximum(1, counts[key.step])[:, None] if key in rows else 1)
        for key, value in own.items()
    }
    apart = replace(evidence.observed, values=handed)
    judgement = judge(change_evidence(evidence, apart=apart))
    if divide is divide_rows:
        check_passed(judgement)
        return
    (found,) = judgement.findings
    assert (found.code, found.phase) == ("sparse-averaged", "reduced_gradient")
    assert "by that of all examples" in found.explanation


def test_rows_that_no_replica_has_twice_are_divided_by_one_device_alone() -> None:
    """Each replica's mean of a single slice is that slice: what arrives is the sum."""
    alone = on([TABLE], lambda value: divide_rows([value]))
    run = Simulation(Setup(shards=(3, 2), alone=alone, sparse=True))
    ids = np.array([[0, 1], [2, 3], [4, 5], [1, 0], [3, 2]])
    run.batches = [(x, ids, y) for x, _, y in run.batches]
    evidence = run.observe(Fault(reduce=reduce_some([TABLE], divide_rows_each)))
    (found,) = judge(evidence).findings
    told = (found.code, found.phase, found.variable)
    assert told == ("sparse-averaged", "reduced_gradient", TABLE), found.explanation
    assert "by that of all examples" in found.explanation
    assert found.confidence == 1.0
