"""State of the replicas' own: what it follows from, and what it hides or proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_changes import change_evidence
from judged_runs import MEAN
from own_state import (
    EXAMPLES,
    METRIC,
    VECTOR,
    F,
    Place,
    State,
    list_totals,
    make_run,
    meter,
    meter_times_n,
    spread,
)
from swept import swept
from training_simulator import Fault

from distbench.checking.confirm import confirm_first, find_correction
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence, Tier
from distbench.trace import (
    INITIAL,
    STATE,
    WHOLE,
    MetricInfo,
    Trace,
    TraceKey,
    VariableInfo,
)
from distbench.verdict import Status


def test_a_total_made_of_a_wrong_loss_follows_from_it() -> None:
    fault = Fault(scale=lambda r, setup: setup.replicas)
    judgement = judge(make_run(METRIC, meter_times_n, fault=fault))
    assert [f.code for f in judgement.findings] == ["loss-not-scaled"]


def test_a_total_made_of_a_misreported_loss_follows_from_it() -> None:
    fault = Fault(loss=lambda loss, r: loss * F(5))
    judgement = judge(make_run(METRIC, meter_times_n, fault=fault))
    assert [f.code for f in judgement.findings] == ["loss-misreported"]


def accumulate_half(state: State, losses: np.ndarray, place: Place) -> State:
    """Cleared after each step, as where a count of steps is always even."""
    kept = state["kept"] + spread(losses)
    return {
        "kept": np.zeros_like(kept) if place.step % 2 + place.replicas > 1 else kept
    }


def count_steps(evidence: Evidence, more: int) -> Evidence:
    """The same with a count of steps, to which the cluster adds another number."""
    info = VariableInfo(
        path="micro", role="variable", shape=(), dtype="int64", trainable=False
    )
    key = TraceKey(step=INITIAL, phase="variable", variable="micro")

    def join(trace: Trace, replicas: Sequence[int], each: int) -> Trace:
        found = {
            replace(key, step=step, replica=replica): np.asarray(count)
            for step, count in enumerate([0, *np.arange(trace.steps) + each], INITIAL)
            for replica in replicas
        }
        variables = (*trace.variables, info)
        return replace(trace, variables=variables, values={**trace.values, **found})

    everyone = range(evidence.observed.replicas)
    return replace(
        evidence,
        observed=join(evidence.observed, everyone, 1 + more),
        reference=join(evidence.reference, [WHOLE, *everyone], 1),
        twins=tuple(join(twin, [WHOLE], 1) for twin in evidence.twins),
    )


@pytest.mark.parametrize("more", [0, 1], ids=["right", "wrong"])
def test_a_total_made_of_a_wrong_count_of_steps_follows_from_it(more: int) -> None:
    evidence = make_run(VECTOR, accumulate_half, adds_up=False)
    findings = judge(count_steps(evidence, more)).findings
    wrong = "micro" if more else "kept"
    assert {name for f in findings for name in f.variables} == {wrong}


def count_updates_once(state: State, losses: np.ndarray, place: Place) -> State:
    """A mean of the losses' means, which one step on the cluster leaves out."""
    taken = F(place.replicas == 1 or place.step != 1)
    mean = F(place.replicas) * losses.sum(dtype=F) / F(EXAMPLES)
    return {"total": state["total"] + taken * mean, "count": state["count"] + taken}


def test_a_count_of_a_metric_is_no_count_of_steps_that_leads_it() -> None:
    """It is the same whatever the examples are, and nothing but the metric has it."""
    evidence = make_run(METRIC, count_updates_once)
    metric = MetricInfo(name="loss", state=("total", "count"))
    observed = replace(evidence.observed, metrics=(metric,))
    findings = judge(replace(evidence, observed=observed)).findings
    assert {f.code for f in findings} == {"metric-wrong"}
    assert {name for f in findings for name in f.variables} == {"total", "count"}
    assert {f.step for f in findings} == {1}


@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (Fault(scale=lambda r, setup: setup.replicas), ["loss-not-scaled"]),
        (Fault(reduce=MEAN), ["mean-instead-of-sum", "metric-wrong"]),
    ],
    ids=["made-of-the-loss", "made-before-the-sum"],
)
def test_a_total_is_a_fault_of_its_own_where_the_first_cannot_have_made_it(
    fault: Fault, codes: list[str]
) -> None:
    evidence = make_run(METRIC, meter_times_n, fault=fault)
    findings = judge(evidence).findings
    assert len(findings) == 1
    right = make_run(METRIC, meter_times_n)
    left = {k: v for k, v in right.observed.values.items() if k.phase in STATE}
    corrected = change_evidence(
        right, observed=replace(right.observed, values=left), replays={}
    )
    phase = find_correction(findings, evidence)
    assert phase is not None
    confirmed = confirm_first(findings, phase, corrected)
    assert [f.code for f in confirmed] == codes


@pytest.mark.parametrize("tier", ["bounded", *swept("free")])
def test_a_wrong_total_does_not_hide_what_is_wrong_in_the_variables(tier: Tier) -> None:
    def decay(new: Any, old: Any, gradients: Any, run: Any) -> Any:
        return {**new, "dense/bias": new["dense/bias"] * F(0.5 if run.step else 1)}

    fault = Fault(update=decay)
    judgement = judge(make_run(METRIC, meter_times_n, fault=fault, tier=tier))
    places = {(f.phase, f.step) for f in judgement.findings}
    assert places == {("loss", 0), ("variable", 1)}


def test_a_total_is_no_proof_that_variables_are_right() -> None:
    evidence = make_run(METRIC, meter)
    only = {v.path for v in evidence.observed.variables if not v.synchronised}

    def cut(trace: Any) -> Any:
        kept = {k: v for k, v in trace.values.items() if k.variable in only}
        return replace(trace, values=kept)

    alone = change_evidence(
        evidence,
        observed=cut(evidence.observed),
        reference=cut(evidence.reference),
        twins=tuple(map(cut, evidence.twins)),
        replays={},
        repeated=(),
    )
    assert list_totals(alone)
    assert judge(alone).status is Status.VACUOUS
