"""Weights that train as the mean of copies, of which each replica has its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from own_state import STEPS, VECTOR, F, Place, State, Update, make_run, spread

from distbench.compare.comparison import Comparison, compare_evidence
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import Trace
from distbench.verdict import Status


def descend(state: State, losses: np.ndarray, place: Place) -> State:
    """By N times what the own examples make of it: on average by what all make."""
    return {"kept": state["kept"] - F(place.replicas) * spread(losses)}


def descend_by_share(state: State, losses: np.ndarray, place: Place) -> State:
    return {"kept": state["kept"] - spread(losses)}


def descend_on_last(state: State, losses: np.ndarray, place: Place) -> State:
    is_last = place.replica == place.replicas - 1
    return descend(state, losses, place) if is_last else state


def descend_by_root(state: State, losses: np.ndarray, place: Place) -> State:
    """No shards' gains make up that of all, as under a rule that is not linear."""
    return {"kept": state["kept"] - np.sqrt(spread(losses))}


def train(update: Update) -> Evidence:
    """A run whose own state is trained and read as its mean."""
    evidence = make_run(VECTOR, update, adds_up=False)

    def mark(trace: Trace) -> Trace:
        return replace(
            trace,
            variables=tuple(
                replace(info, trainable=True, averages=True)
                if info.path == "kept"
                else info
                for info in trace.variables
            ),
        )

    return replace(
        evidence,
        reference=mark(evidence.reference),
        observed=mark(evidence.observed),
        twins=tuple(map(mark, evidence.twins)),
    )


def list_averages(evidence: Evidence) -> list[Comparison]:
    compared = [judged.comparison for judged in compare_evidence(evidence)]
    return [c for c in compared if c.variable == "kept" and c.step >= 0]


def test_the_mean_of_copies_is_what_one_device_has_however_they_differ() -> None:
    evidence = train(descend)
    assert judge(evidence).status is Status.PASS
    found = list_averages(evidence)
    assert [c.relation for c in found] == ["average"] * STEPS
    assert all(c.effective for c in found)


@pytest.mark.parametrize(
    ("update", "code"),
    [
        (descend_by_share, "mean-instead-of-sum"),
        (descend_on_last, "replicas-diverged"),
        (descend_by_root, "replicas-diverged"),
    ],
    ids=["shares", "on-one", "not-linear"],
)
def test_a_wrong_mean_of_copies_is_told_in_its_first_step(
    update: Update, code: str
) -> None:
    (found,) = judge(train(update)).findings
    assert (found.code, found.phase, found.step) == (code, "variable", 0)
    assert found.variables == ("kept",)


def test_what_is_computed_from_copies_that_differ_has_that_cause() -> None:
    """As under local SGD: the losses are wrong once a step has left them different."""
    evidence = train(descend)
    moved = {
        key: value * F(1.01) if key.phase == "loss" and key.step > 0 else value
        for key, value in evidence.observed.values.items()
    }
    evidence = replace(evidence, observed=replace(evidence.observed, values=moved))
    (found,) = judge(evidence).findings
    assert (found.code, found.phase, found.step) == ("replicas-diverged", "loss", 1)
    assert "--expect replicas-diverged" in found.explanation


def test_a_loss_that_was_wrong_before_they_differ_has_another_cause() -> None:
    evidence = train(descend)
    moved = {
        key: value * F(1.01) if key.phase == "loss" else value
        for key, value in evidence.observed.values.items()
    }
    evidence = replace(evidence, observed=replace(evidence.observed, values=moved))
    assert judge(evidence).findings[0].code != "replicas-diverged"
