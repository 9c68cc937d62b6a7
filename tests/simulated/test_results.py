"""What a metric shows, beside the state that it makes it of, in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from own_state import (
    METRIC,
    SHARDS,
    F,
    Place,
    State,
    Update,
    make_run,
    meter,
    meter_shares,
    meter_times_n,
    move,
)
from swept import swept

from distbench.compare.comparison import Comparison, compare_evidence
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, MetricInfo, Trace, TraceKey
from distbench.verdict import Status

Show = Callable[[State], Any]


def divide(state: State) -> Any:
    return F(state["total"] / state["count"])


def show(
    evidence: Evidence,
    metrics: Mapping[str, Show],
    factor: float = 1.0,
    state: tuple[str, ...] = ("total", "count"),
) -> Evidence:
    """The same evidence with what metrics make of the state, on the cluster of sums."""
    rng = np.random.default_rng(5)
    infos = tuple(MetricInfo(name=name, state=state) for name in metrics)

    def tell(trace: Trace, factor: float, *, near: bool = False) -> Trace:
        found = dict(trace.values)
        is_cluster = trace is evidence.observed
        for step in range(evidence.observed.steps):
            held = {}
            for path in state:
                key = TraceKey(step=step, phase="variable", variable=path)
                copies = range(trace.replicas) if is_cluster else (WHOLE,)
                values = [np.asarray(trace.values[key.at(r)]) for r in copies]
                total = np.sum(values, axis=0, dtype=values[0].dtype)
                held[path] = move(total, rng) if near else total
            for name, make in metrics.items():
                key = TraceKey(step=step, phase="loss", variable=name)
                found[key] = np.asarray(F(factor) * make(held), np.float32)
        return replace(trace, values=found, metrics=infos)

    return replace(
        evidence,
        observed=tell(evidence.observed, factor),
        reference=tell(evidence.reference, 1.0),
        twins=tuple(tell(twin, 1.0, near=True) for twin in evidence.twins),
    )


def list_results(evidence: Evidence) -> list[Comparison]:
    compared = [judged.comparison for judged in compare_evidence(evidence)]
    return [c for c in compared if c.relation == "result"]


def share(state: State, losses: np.ndarray, place: Place) -> State:
    """Every replica's share of the loss, and one update counted."""
    made = meter_shares(state, losses, Place())
    return {"total": made["total"], "count": made["count"]}


def add_largest(state: State, losses: np.ndarray, place: Place) -> State:
    """A mean of what is the largest of a batch."""
    return {
        "total": state["total"] + losses.max(initial=0),
        "count": state["count"] + F(1),
    }


def keep_largest(state: State, losses: np.ndarray, place: Place) -> State:
    return {"worst": np.maximum(state["worst"], losses.max(initial=0))}


@pytest.mark.parametrize("update", [meter, meter_shares], ids=["losses", "n-shares"])
@pytest.mark.parametrize("tier", ["bounded", *swept("free")])
def test_a_right_result_passes_and_could_have_failed(update: Update, tier: Any) -> None:
    evidence = show(make_run(METRIC, update, tier=tier), {"loss": divide})
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement
    results = list_results(evidence)
    assert [c.step for c in results] == [0, 1, 2]
    assert all(c.effective for c in results), results


def test_a_mean_of_shares_is_wrong_though_its_total_and_count_are_right() -> None:
    evidence = show(
        make_run(METRIC, share), {"loss": divide, "last": lambda s: s["total"]}
    )
    judgement = judge(evidence)
    assert judgement.status is Status.FAIL
    (found,) = judgement.findings
    assert (found.code, found.phase) == ("metric-wrong", "loss")
    assert found.variables == ("loss",)
    assert found.replicas == (0, 1, 2)
    assert found.ratio == pytest.approx(1 / 3, rel=1e-5)


def add_root(state: State, losses: np.ndarray, place: Place) -> State:
    """What shards alone neither add up to nor average, as a norm of weights."""
    return {
        "total": state["total"] + np.sqrt(F(losses.sum())),
        "count": state["count"] + F(1),
    }


@pytest.mark.parametrize(
    ("make", "is_right"), [(divide, True), (lambda state: state["total"], False)]
)
def test_what_every_replica_adds_alike_is_right_if_a_count_divides_by_it(
    make: Show, is_right: bool
) -> None:
    run = make_run(METRIC, add_root)
    values = {
        key: run.reference.values[key.at(WHOLE)]
        if key.variable in ("total", "count")
        else value
        for key, value in run.observed.values.items()
    }
    alike = replace(run, observed=replace(run.observed, values=values))
    judgement = judge(show(alike, {"sizes": make}))
    assert (judgement.status is Status.PASS) is is_right, judgement
    if not is_right:
        (found,) = judgement.findings
        assert (found.code, found.variables) == ("metric-wrong", ("sizes",))
        assert found.ratio == pytest.approx(3, rel=1e-5)


def test_a_small_error_of_a_result_is_seen() -> None:
    evidence = show(make_run(METRIC, meter), {"loss": divide}, factor=1 + 1e-4)
    assert [f.code for f in judge(evidence).findings] == ["metric-wrong"]


def test_a_result_of_a_wrong_total_is_not_told_again() -> None:
    evidence = show(make_run(METRIC, meter_times_n), {"loss": divide})
    assert list_results(evidence) == []
    (found,) = judge(evidence).findings
    assert found.variables == ("total",)


@pytest.mark.parametrize("step", [1, *swept(0)])
def test_a_result_made_of_a_wrong_loss_follows_from_it(step: int) -> None:
    """It stays wrong in later steps, in which the loss is right again."""
    evidence = show(make_run(METRIC, meter), {"loss": divide})
    values = dict(evidence.observed.values)
    for key, value in values.items():
        if key.phase == "loss" and not key.variable and key.step == step:
            values[key] = np.asarray(5 * value)
        if key.phase == "loss" and key.variable and key.step >= step:
            values[key] = np.asarray(2 * value)
    observed = replace(evidence.observed, values=values)
    judgement = judge(replace(evidence, observed=observed))
    assert [f.code for f in judgement.findings] == ["loss-misreported"]


def test_of_a_state_that_depends_on_the_split_no_result_is_known() -> None:
    evidence = show(make_run(METRIC, add_largest), {"loss": divide}, factor=3.0)
    assert list_results(evidence) == []
    assert judge(evidence).status is Status.PASS


def keep_size(state: State, losses: np.ndarray, place: Place) -> State:
    """A number that all replicas know alike; the count is never used."""
    return {"total": F(place.step + 2), "count": state["count"]}


def keep_share(state: State, losses: np.ndarray, place: Place) -> State:
    """Each replica's share of it."""
    return {"total": F((place.step + 2) / place.replicas), "count": state["count"]}


def test_a_part_that_is_never_used_hides_no_wrong_result() -> None:
    run = make_run(METRIC, keep_size)
    judgement = judge(show(run, {"size": lambda s: s["total"]}))
    (found,) = judgement.findings
    assert (found.code, found.variables) == ("metric-wrong", ("size",))
    assert found.ratio == pytest.approx(3)


def test_a_right_result_passes_beside_a_part_that_is_never_used() -> None:
    evidence = show(make_run(METRIC, keep_share), {"size": lambda s: s["total"]})
    assert len(list_results(evidence)) == 3
    assert judge(evidence).status is Status.PASS


def test_of_a_metric_that_nobody_feeds_no_result_is_compared() -> None:
    run = make_run(METRIC, lambda state, losses, place: state)
    assert list_results(show(run, {"size": lambda s: s["total"]})) == []


def test_what_a_metric_shows_of_the_split_is_told_if_nobody_can_judge_it() -> None:
    run = make_run(METRIC, add_root)
    judgement = judge(show(run, {"roots": divide}))
    assert judgement.status is Status.PASS
    words = (
        r"the metric 'roots' shows [\d.]+ in step \d, one device [\d.]+: .*not judged"
    )
    assert re.search(words, judgement.message)
    judged = judge(show(make_run(METRIC, meter), {"loss": divide}))
    assert "was not judged" not in judged.message


def show_multiples(run: Evidence, factors: list[float]) -> Evidence:
    """A metric that shows so many times one device's, step by step."""
    evidence = show(run, {"shown": divide})
    values = dict(evidence.observed.values)
    for step, factor in enumerate(factors):
        key = TraceKey(step=step, phase="loss", variable="shown")
        due = np.asarray(evidence.reference.values[key])
        values[key] = np.asarray(F(factor) * due, np.float32)
    return replace(evidence, observed=replace(evidence.observed, values=values))


def add_root_later(state: State, losses: np.ndarray, place: Place) -> State:
    """Nothing in the first step but the weight of its examples."""
    made = add_root(state, losses, place)
    return {**made, "total": state["total"]} if place.step == 0 else made


@pytest.mark.parametrize("update", [add_root, add_root_later], ids=["all", "later"])
@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_one_multiple_in_every_step_is_no_matter_of_the_split(
    update: Update, factor: float
) -> None:
    judgement = judge(show_multiples(make_run(METRIC, update), [factor] * 3))
    (found,) = judgement.findings
    assert (found.code, found.variables) == ("metric-wrong", ("shown",))
    assert found.ratio == pytest.approx(factor, rel=1e-5)
    assert "in every step" in found.explanation
    assert "was not judged" not in judgement.message


MANY = (3000, 2000)


@pytest.mark.parametrize("factor", [1 / 2, 2.0])
def test_a_multiple_is_none_by_chance_because_there_are_many_examples(
    factor: float,
) -> None:
    run = make_run(METRIC, add_root, shards=MANY)
    (found,) = judge(show_multiples(run, [factor] * 3)).findings
    assert (found.code, found.variables) == ("metric-wrong", ("shown",))


def show_integers(evidence: Evidence) -> Evidence:
    """The same where integers are shown, of which a twin has no others."""
    due = evidence.reference.values

    def tell(trace: Trace) -> Trace:
        values = dict(trace.values)
        for key in [key for key in values if key.variable == "shown"]:
            whole = np.float64(due[key.at(WHOLE)])
            values[key] = np.int64(
                np.rint(3 * values[key] / whole) * np.rint(1e6 * whole)
            )
        return replace(trace, values=values)

    return evidence.change_traces(tell)


@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_a_multiple_of_large_integers_is_told(factor: float) -> None:
    run = show_multiples(make_run(METRIC, add_root), [factor] * 3)
    (found,) = judge(show_integers(run)).findings
    assert (found.code, found.variables) == ("metric-wrong", ("shown",))


def add_whole_root(state: State, losses: np.ndarray, place: Place) -> State:
    """A whole number of which the same holds, as of a count."""
    made = add_root(state, losses, place)
    return {**made, "total": state["total"] + np.ceil(made["total"] - state["total"])}


@pytest.mark.parametrize(
    ("update", "shards", "factors"),
    [
        (add_root, SHARDS, [1 / 3, 1 / 3, 1 / 3 + 1e-4]),
        (add_root, SHARDS, [1 / 3, 1 / 2, 1 / 3]),
        (add_root, SHARDS, [1 / 2] * 3),
        (add_whole_root, SHARDS, [1 / 3] * 3),
        (add_whole_root, MANY, [1 / 2] * 3),
    ],
    ids=["nearly", "not-in-one", "of-other-number", "counts", "counts-of-many"],
)
def test_a_multiple_that_may_be_chance_is_a_note(
    update: Update, shards: tuple[int, ...], factors: list[float]
) -> None:
    judgement = judge(show_multiples(make_run(METRIC, update, shards=shards), factors))
    assert judgement.status is Status.PASS
    assert "was not judged" in judgement.message


def test_what_a_metric_shows_is_told_of_no_rounding_and_no_nan() -> None:
    run = make_run(METRIC, add_root)
    cancelled = show(run, {"shown": lambda state: F(1)})

    def cancel(trace: Trace) -> Trace:
        """0 in the last step, but for rounding, and 1 before it."""
        key = TraceKey(step=2, phase="loss", variable="shown")
        left = np.float32(1e-9 * (2 if trace is cancelled.observed else 1))
        return replace(trace, values={**trace.values, key: left})

    evidence = cancelled.change_traces(cancel)
    assert "was not judged" not in judge(evidence).message
    nothing = show(run, {"roots": lambda state: F(np.nan)})
    assert "was not judged" not in judge(nothing).message


WORST = {"worst": F(0)}


def test_largest_values_that_are_added_up_are_wrong() -> None:
    run = make_run(WORST, keep_largest)
    evidence = show(run, {"worst_error": lambda s: s["worst"]}, state=("worst",))
    judgement = judge(evidence)
    assert judgement.status is Status.FAIL
    (found,) = judgement.findings
    assert (found.code, found.phase) == ("metric-wrong", "loss")
    assert found.variables == ("worst_error",)
    assert "which do not add up" in found.explanation


def test_a_largest_value_that_is_shown_as_on_one_device_passes() -> None:
    evidence = show(
        make_run(WORST, keep_largest), {"worst_error": lambda s: F(1)}, state=("worst",)
    )
    assert list_results(evidence)
    assert judge(evidence).status is Status.PASS


def share_out(evidence: Evidence) -> Evidence:
    """The same where every replica holds its part, 1/N, of the largest value of all."""
    values = dict(evidence.observed.values)
    n = F(evidence.observed.replicas)
    for key in evidence.observed.values:
        if key.variable == "worst" and key.step != INITIAL:
            values[key] = np.asarray(evidence.reference.values[key.at(WHOLE)] / n)
    return replace(evidence, observed=replace(evidence.observed, values=values))


@pytest.mark.parametrize(
    ("factor", "status"),
    [(1.0, Status.PASS), (2.0, Status.FAIL)],
    ids=["right", "twice"],
)
def test_a_largest_value_that_the_copies_make_up_is_compared(
    factor: float, status: Status
) -> None:
    run = share_out(make_run(WORST, keep_largest))
    shown = {"worst_error": lambda s: s["worst"]}
    evidence = show(run, shown, factor=factor, state=("worst",))
    judgement = judge(evidence)
    assert judgement.status is status, judgement
    assert len(list_results(evidence)) == 3
    codes = [finding.code for finding in judgement.findings]
    assert codes == ["metric-wrong"] * (status is Status.FAIL)


def test_a_metric_that_starts_from_more_than_nothing_is_left_alone() -> None:
    evidence = show(make_run(METRIC, meter), {"loss": divide}, factor=3.0)
    values = dict(evidence.observed.values)
    key = TraceKey(step=INITIAL, phase="variable", variable="count", replica=1)
    values[key] = np.asarray(F(7))
    evidence = replace(evidence, observed=replace(evidence.observed, values=values))
    assert list_results(evidence) == []


def test_a_result_is_no_proof_that_a_loss_was_compared() -> None:
    evidence = show(make_run(METRIC, meter), {"loss": divide})
    left = {
        k: v
        for k, v in evidence.observed.values.items()
        if k.phase != "loss" or k.variable
    }
    evidence = replace(evidence, observed=replace(evidence.observed, values=left))
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement
    assert "loss" not in judgement.references
