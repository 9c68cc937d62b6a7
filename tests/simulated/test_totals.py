"""State of the replicas' own, through its sum, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_changes import change_evidence
from judged_runs import MEAN
from own_state import (
    EXAMPLES,
    METRIC,
    STEPS,
    F,
    Place,
    State,
    Update,
    list_totals,
    make_run,
    meter,
    meter_shares,
    meter_times_n,
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
    Trace,
    TraceKey,
    Values,
    VariableInfo,
)
from distbench.verdict import Status

INTEGER = {"seen": np.int64(0)}
VECTOR = {"kept": np.zeros(4, F)}


def count(state: State, losses: np.ndarray, place: Place) -> State:
    return {"seen": state["seen"] + len(losses)}


def spread(losses: np.ndarray) -> np.ndarray:
    """A gradient of four numbers under a fixed global size."""
    return (losses.sum(dtype=F) / F(EXAMPLES) * np.arange(1, 5, dtype=F)).astype(F)


def accumulate(state: State, losses: np.ndarray, place: Place) -> State:
    """Reset in every second step, after it was used."""
    kept = state["kept"] + spread(losses)
    return {"kept": np.zeros_like(kept) if place.step % 2 else kept}


def average(state: State, losses: np.ndarray, place: Place) -> State:
    mean = np.resize(losses.mean(dtype=F), 4)
    return {"kept": F(0.9) * state["kept"] + F(0.1) * mean}


def keep_maximum(state: State, losses: np.ndarray, place: Place) -> State:
    return {"kept": np.maximum(state["kept"], np.resize(losses.max(), 4))}


def feed_back(state: State, losses: np.ndarray, place: Place) -> State:
    """What rounding to one digit keeps back; one device sends all."""
    due = state["kept"] + spread(losses)
    return {"kept": due - np.round(due) if place.replicas > 1 else 0 * due}


RIGHT_PROGRAMS: dict[str, tuple[Mapping[str, Any], Update, dict[str, Any], int]] = {
    "metric": (METRIC, meter, {}, 6),
    "metric-under-even-shards": (METRIC, meter, {"shards": (8, 8)}, 6),
    "metric-with-an-empty-shard": (METRIC, meter, {"shards": (9, 0, 7)}, 6),
    "metric-running-free": (METRIC, meter, {"tier": "free"}, 6),
    "metric-of-shares": (METRIC, meter_shares, {}, 6),
    "integer": (INTEGER, count, {}, 3),
    "accumulator": (VECTOR, accumulate, {"adds_up": False}, 3),
    "average-of-its-own": (VECTOR, average, {"adds_up": False}, 0),
    "average-under-even-shards": (VECTOR, average, {"shards": (8, 8)}, 3),
    "maximum": (VECTOR, keep_maximum, {}, 0),
    "error-feedback": (VECTOR, feed_back, {"adds_up": False}, 0),
}


@pytest.mark.first(2)
@pytest.mark.parametrize("name", RIGHT_PROGRAMS)
def test_a_correct_total_passes_and_could_have_failed(name: str) -> None:
    start, update, options, known = RIGHT_PROGRAMS[name]
    evidence = make_run(start, update, **options)
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement
    assert judgement.findings == ()
    totals = list_totals(evidence)
    assert len(totals) == known
    assert all(c.effective for c in totals), totals


def test_counts_allow_no_error_at_all() -> None:
    bounds = {
        c.variable: c.bound for c in list_totals(make_run({**METRIC, **INTEGER}, both))
    }
    assert bounds["count"] == bounds["seen"] == 0
    assert 0 < bounds["total"] < 1e-3


def both(state: State, losses: np.ndarray, place: Place) -> State:
    return {**meter(state, losses, place), **count(state, losses, place)}


def meter_first(state: State, losses: np.ndarray, place: Place) -> State:
    return state if place.replica else meter(state, losses, place)


def meter_local_means(state: State, losses: np.ndarray, place: Place) -> State:
    return meter(
        state, losses[:0] if not len(losses) else losses.mean(keepdims=True), place
    )


def count_all(state: State, losses: np.ndarray, place: Place) -> State:
    every = EXAMPLES if place.replicas > 1 else len(losses)
    return {"seen": state["seen"] + every}


def lose_one(state: State, losses: np.ndarray, place: Place) -> State:
    late = place.replica == 1 and place.step == 2
    return {"seen": state["seen"] + len(losses) - late}


def accumulate_twice(state: State, losses: np.ndarray, place: Place) -> State:
    times = F(2) if place.replica == 2 else F(1)
    return {"kept": state["kept"] + times * spread(losses)}


def divide_by_nothing(state: State, losses: np.ndarray, place: Place) -> State:
    made = meter(state, losses, place)
    return {**made, "total": F(np.nan)} if place.replica == 1 else made


def drift(state: State, losses: np.ndarray, place: Place) -> State:
    return meter(state, losses * F(1 + 3e-4 * (place.replicas > 1)), place)


WRONG: dict[str, tuple[Mapping[str, Any], Update, dict[str, Any]]] = {
    "times-n": (
        METRIC,
        meter_times_n,
        {"variables": ("total",), "replicas": (0, 1, 2), "ratio": 3},
    ),
    "first-replica": (
        METRIC,
        meter_first,
        {"variables": ("total", "count"), "replicas": (1, 2)},
    ),
    "local-means": (
        METRIC,
        meter_local_means,
        {"variables": ("total",), "replicas": (0, 1, 2)},
    ),
    "counted-on-every-replica": (
        INTEGER,
        count_all,
        {"variables": ("seen",), "replicas": (0, 1, 2), "ratio": 3},
    ),
    "one-lost": (
        INTEGER,
        lose_one,
        {"variables": ("seen",), "replicas": (1,), "step": 2, "ratio": 15 / 16},
    ),
    "accumulated-twice": (
        VECTOR,
        accumulate_twice,
        {"variables": ("kept",), "replicas": (2,)},
    ),
    "not-a-number": (
        METRIC,
        divide_by_nothing,
        {"variables": ("total",), "replicas": (0, 1, 2)},
    ),
    "three-in-ten-thousand": (
        METRIC,
        drift,
        {"variables": ("total",), "replicas": (0, 1, 2), "ratio": 1.0003},
    ),
}


@pytest.mark.first(3)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_total_is_named(name: str) -> None:
    start, update, due = WRONG[name]
    judgement = judge(make_run(start, update))
    assert judgement.status is Status.FAIL
    assert len(judgement.findings) == 1, judgement.findings
    found = judgement.findings[0]
    assert (found.code, found.phase) == ("metric-wrong", "loss")
    assert found.variables == due["variables"]
    assert found.variable == due["variables"][0]
    assert found.replicas == due["replicas"]
    assert found.step == due.get("step", 0)
    if "ratio" in due:
        assert found.ratio == pytest.approx(due["ratio"], rel=1e-5)


def hold_in_common(
    evidence: Evidence, share: float = 1.0, start: float = 0.0
) -> Evidence:
    """Every replica has what one device adds for the whole batch, or a share of it."""
    values = {
        key: F(start) + F(share) * (evidence.reference.values[key.at(WHOLE)] - F(start))
        if key.variable == "kept" and key.step != INITIAL
        else value
        for key, value in evidence.observed.values.items()
    }
    return replace(evidence, observed=replace(evidence.observed, values=values))


def add(state: State, losses: np.ndarray, place: Place) -> State:
    return {"kept": state["kept"] + spread(losses)}


@pytest.mark.parametrize("update", [add, average])
def test_what_all_replicas_make_alike_is_what_one_device_makes(update: Update) -> None:
    """As slots that every replica has for itself, and moves by the same sum."""
    evidence = hold_in_common(make_run(VECTOR, update, adds_up=False))
    assert judge(evidence).status is Status.PASS
    assert len(list_totals(evidence)) == STEPS


def add_squares(state: State, losses: np.ndarray, place: Place) -> State:
    return {"kept": state["kept"] + spread(losses) ** 2}


@pytest.mark.parametrize(
    ("share", "update", "start", "code", "ratio"),
    [
        (1 / 3, add, 0.0, "mean-instead-of-sum", 1 / 3),
        (3.0, add, 0.0, "double-reduction", 3.0),
        (1 / 9, add_squares, 0.0, "mean-instead-of-sum", 1 / 3),
        (9.0, add_squares, 0.0, "double-reduction", 3.0),
        (1 / 9, add, -1e3, "metric-wrong", 1 / 9),
        (0.7, add, 0.0, "metric-wrong", 0.7),
    ],
    ids=["mean", "twice", "squared-mean", "squared-twice", "no-square", "odd"],
)
def test_alike_and_wrong_is_no_part_of_a_sum(
    share: float, update: Update, start: float, code: str, ratio: float
) -> None:
    """Three thirds would make it up, and nobody adds them: a mean was taken."""
    begun = {"kept": F(start) + np.asarray(VECTOR["kept"], F)}
    evidence = hold_in_common(make_run(begun, update, adds_up=False), share, start)
    (found,) = judge(evidence).findings
    assert (found.code, found.variables) == (code, ("kept",))
    assert found.ratio == pytest.approx(ratio, rel=1e-3)


def test_what_is_read_as_a_sum_holds_the_whole_but_once() -> None:
    assert judge(hold_in_common(make_run(VECTOR, add))).status is Status.FAIL


def test_a_total_that_belongs_to_a_variable_has_a_name_of_its_own() -> None:
    evidence = make_run(VECTOR, accumulate_twice)

    def give_owner(trace: Trace) -> Trace:
        owner = trace.variables[0].path
        named = [
            replace(v, of=owner, role="slot") if v.path == "kept" else v
            for v in trace.variables
        ]
        values = Values(trace.values).rename(
            lambda key: replace(key, phase="slot") if key.variable == "kept" else key
        )
        return replace(trace, variables=tuple(named), values=values)

    (found,) = judge(evidence.change_traces(give_owner)).findings
    assert (found.code, found.variables) == ("metric-wrong", ("kept",))


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
