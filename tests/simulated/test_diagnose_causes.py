"""Every cause: a run that has it is named, and the same run without it passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from planted_case import check_named, check_passed, run_case
from planted_faults import ONE_OF_EACH, SETUPS
from training_simulator import Fault, observe

from distbench.diagnose.judge import judge
from distbench.trace import WHOLE, TraceKey, VariableInfo


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda case: case.name)
def test_a_planted_fault_is_named(case):
    check_named(case, run_case(case))


@pytest.mark.first(8)
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: "-".join(setup) or "plain")
def test_the_same_run_without_the_fault_passes(setup):
    check_passed(judge(observe(steps=1, **setup)))


def test_a_scale_lies_in_gradients_that_show_it_before_the_loss():
    evidence = observe(Fault(scale=lambda r, setup: setup.replicas))
    values = dict(evidence.observed.values)
    for key in values:
        if key.phase == "loss" and key.step == 0:
            values[key] = values[key] / evidence.observed.replicas
    assert judge(evidence).findings[0].phase == "loss"
    observed = replace(evidence.observed, values=values)
    first = judge(replace(evidence, observed=observed)).findings[0]
    assert (first.code, first.step) == ("loss-not-scaled", 0)
    assert first.phase == "local_gradient"


def test_a_learning_rate_that_starts_otherwise_is_no_average():
    def add_rate(trace, value):
        rate = VariableInfo(path="rate", role="slot", shape=(), dtype="float32")
        values = {
            TraceKey(step=-1, phase="slot", variable="rate", replica=r): np.float32(v)
            for r, v in value.items()
        }
        values = {key: np.array(v) for key, v in values.items()}
        return replace(
            trace,
            variables=(*trace.variables, rate),
            values={**trace.values, **values},
        )

    evidence = observe()
    evidence = replace(
        evidence,
        observed=add_rate(evidence.observed, {0: 0.2, 1: 0.2}),
        reference=add_rate(evidence.reference, {WHOLE: 0.1}),
    )
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("hyperparameter-differs", "slot")
    assert (finding.step, finding.variables) == (-1, ("rate",))


@pytest.mark.parametrize(
    ("error", "codes"),
    [(2.0**-24, []), (2.0**-8, ["statistics-not-synchronized"])],
    ids=["rounding", "wrong"],
)
def test_a_statistic_follows_from_no_gradient(error, codes):
    """Its sum over the replicas rounds otherwise than one device's sum does."""

    def add(trace, replicas, change=0.0):
        mean = VariableInfo(
            path="mean", role="variable", shape=(3,), dtype="float32", trainable=False
        )
        right = np.array([0.5, 0.25, 0.75], np.float32)
        values = {
            TraceKey(step=step, phase="variable", variable="mean", replica=r): (
                np.float32(1 + change) * (step + 2) * right
            ).astype(np.float32)
            for step in range(-1, trace.steps)
            for r in replicas
            if step >= 0 or not change
        }
        return replace(
            trace,
            variables=(*trace.variables, mean),
            values={**trace.values, **values},
        )

    evidence = observe()
    both = range(evidence.observed.replicas)
    start = add(evidence.observed, both)
    observed = add(start, both, change=error)
    evidence = change_evidence(
        evidence,
        observed=replace(observed, variables=start.variables),
        reference=add(evidence.reference, (WHOLE,)),
        replays={k: add(v, both) for k, v in evidence.fed.replays.items()},
        twins=tuple(add(twin, (WHOLE,)) for twin in evidence.twins),
    )
    assert [f.code for f in judge(evidence).findings] == codes
