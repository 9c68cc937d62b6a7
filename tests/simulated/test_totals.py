"""State of the replicas' own, through its sum: right programs and wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from own_state import (
    EXAMPLES,
    METRIC,
    SHARDS,
    VECTOR,
    F,
    Place,
    State,
    Update,
    average,
    list_totals,
    make_run,
    meter,
    meter_shares,
    meter_times_n,
    spread,
)

from distbench.diagnose.judge import judge
from distbench.trace import Trace, Values
from distbench.verdict import Status

INTEGER = {"seen": np.int64(0)}


def count(state: State, losses: np.ndarray, place: Place) -> State:
    return {"seen": state["seen"] + len(losses)}


def accumulate(state: State, losses: np.ndarray, place: Place) -> State:
    """Reset in every second step, after it was used."""
    kept = state["kept"] + spread(losses)
    return {"kept": np.zeros_like(kept) if place.step % 2 else kept}


def keep_maximum(state: State, losses: np.ndarray, place: Place) -> State:
    return {"kept": np.maximum(state["kept"], np.resize(losses.max(), 4))}


def feed_back(state: State, losses: np.ndarray, place: Place) -> State:
    """What rounding to one digit keeps back; one device sends all."""
    due = state["kept"] + spread(losses)
    return {"kept": due - np.round(due) if place.replicas > 1 else 0 * due}


ANEW = {"total": F(0), "updates": np.zeros(2, F)}
APART = {"updates": F(0), "one": F(0), "other": F(0)}


def begin_anew(state: State, losses: np.ndarray, place: Place) -> State:
    """N times each replica's share, and two counts that are set in each step."""
    share = losses.sum(dtype=F) / EXAMPLES
    return {"total": F(place.replicas) * share, "updates": np.ones(2, F)}


def count_for_both(state: State, losses: np.ndarray, place: Place) -> State:
    """N times each replica's share of two totals, and one count of updates."""
    share = F(place.replicas) * losses / EXAMPLES
    return {
        "updates": state["updates"] + F(1),
        "one": state["one"] + share.sum(dtype=F),
        "other": state["other"] + (share**2 / F(place.replicas)).sum(dtype=F),
    }


RIGHT_PROGRAMS: dict[str, tuple[Mapping[str, Any], Update, dict[str, Any], int]] = {
    "metric": (METRIC, meter, {}, 6),
    "metric-under-even-shards": (METRIC, meter, {"shards": (8, 8)}, 6),
    "metric-with-an-empty-shard": (METRIC, meter, {"shards": (9, 0, 7)}, 6),
    "metric-running-free": (METRIC, meter, {"tier": "free"}, 6),
    "metric-of-shares": (METRIC, meter_shares, {}, 6),
    "metric-begun-anew": (ANEW, begin_anew, {}, 4),
    "totals-of-one-count": (APART, count_for_both, {}, 9),
    "integer": (INTEGER, count, {}, 3),
    "accumulator": (VECTOR, accumulate, {"adds_up": False}, 3),
    "average-of-its-own": (VECTOR, average, {"adds_up": False}, 0),
    "average-under-even-shards": (VECTOR, average, {"shards": (8, 8)}, 3),
    "maximum": (VECTOR, keep_maximum, {"adds_up": False}, 0),
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


def test_the_largest_of_each_is_no_sum() -> None:
    (found,) = judge(make_run(VECTOR, keep_maximum)).findings
    assert (found.code, found.variables) == ("metric-wrong", ("kept",))
    assert "what is read of them is their sum" in found.explanation


def test_a_flag_of_each_may_be_a_sum() -> None:
    def raise_flag(state: State, losses: np.ndarray, place: Place) -> State:
        return {"kept": np.maximum(state["kept"], F(len(losses) > min(SHARDS)))}

    start = {"kept": np.zeros((), F)}
    assert judge(make_run(start, raise_flag)).status is Status.PASS


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


@pytest.mark.parametrize("is_carried", [True, False], ids=["carried", "used"])
@pytest.mark.parametrize("times", [1, len(SHARDS)], ids=["share", "n-shares"])
def test_what_is_read_as_a_mean_has_to_be_one(is_carried: bool, times: int) -> None:
    """What a step uses, as an accumulator, it may add up or average by itself.

    What it makes of the copies then tells whether they are right.
    """

    def keep(state: State, losses: np.ndarray, place: Place) -> State:
        factor = F(times if place.replicas > 1 else 1)
        return {"kept": F(0.9) * state["kept"] + factor * spread(losses)}

    evidence = make_run(VECTOR, keep, adds_up=False)
    observed = replace(
        evidence.observed,
        variables=tuple(
            replace(info, averages=True, is_carried=is_carried)
            if info.path == "kept"
            else info
            for info in evidence.observed.variables
        ),
    )
    judgement = judge(replace(evidence, observed=observed))
    is_right = times > 1 or not is_carried
    assert (judgement.status is Status.PASS) is is_right
    told = [(f.code, f.ratio) for f in judgement.findings]
    wrong = ("mean-instead-of-sum", pytest.approx(1 / len(SHARDS)))
    assert told == ([] if is_right else [wrong])


@pytest.mark.parametrize(
    ("kept", "times", "code", "ratio"),
    [
        (0.81, 1.0, "hyperparameter-differs", 1.9),
        (0.95, 1.0, "hyperparameter-differs", 0.5),
        (0.9, 1.9, "metric-wrong", 1.9),
        (1.0, 0.19, "metric-wrong", 1.9),
    ],
    ids=["sooner", "later", "of-more", "adds-up"],
)
def test_an_average_that_goes_farther_has_another_momentum(
    kept: float, times: float, code: str, ratio: float
) -> None:
    """Nothing sets it right, so later steps tell it from more of what it takes."""

    def keep(state: State, losses: np.ndarray, place: Place) -> State:
        share, old = F(0.1), F(0.9)
        if place.replicas > 1:
            share, old = F(times * (1 - kept if kept < 1 else 1)), F(kept)
        return {
            "kept": old * state["kept"] + share * F(place.replicas) * spread(losses)
        }

    evidence = make_run(VECTOR, keep, adds_up=False)
    observed = replace(
        evidence.observed,
        variables=tuple(
            replace(info, averages=True, is_carried=True)
            if info.path == "kept"
            else info
            for info in evidence.observed.variables
        ),
    )
    (found,) = judge(replace(evidence, observed=observed)).findings
    assert (found.code, found.variables) == (code, ("kept",))
    assert found.ratio == pytest.approx(ratio)
