"""State that every replica makes for itself, and all make alike."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from own_state import (
    METRIC,
    STEPS,
    VECTOR,
    F,
    Place,
    State,
    Update,
    average,
    list_totals,
    make_run,
    meter_shares,
    spread,
)

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE
from distbench.verdict import Status


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


def count_steps(state: State, losses: np.ndarray, place: Place) -> State:
    del losses, place
    return {"kept": state["kept"] + F(1)}


def count_examples(state: State, losses: np.ndarray, place: Place) -> State:
    del place
    return {"kept": state["kept"] + F(len(losses))}


@pytest.mark.parametrize(
    ("update", "adds_up", "noted"),
    [
        (count_steps, True, True),
        (count_steps, False, False),
        (count_examples, True, False),
    ],
    ids=["steps-as-a-sum", "steps-as-a-mean", "examples"],
)
def test_a_count_that_each_replica_moves_on_in_full_is_noted(
    update: Update, adds_up: bool, noted: bool
) -> None:
    judgement = judge(make_run({"kept": F(0)}, update, adds_up=adds_up))
    assert judgement.status is Status.PASS, judgement
    assert ("'kept' is read as the sum of its copies" in judgement.message) is noted
    assert ("N = 3 times" in judgement.message) is noted


def add_quotient(state: State, losses: np.ndarray, place: Place) -> State:
    """A number that is no mean of the examples, and how often; later ones are 0."""
    made = np.sqrt(losses.sum(dtype=F)) if place.step == 0 else F(0)
    return {"total": state["total"] + made, "count": state["count"] + F(1)}


@pytest.mark.parametrize("adds_up", [True, False])
def test_what_a_sum_of_copies_holds_of_the_split_is_noted(adds_up: bool) -> None:
    judgement = judge(make_run(METRIC, add_quotient, adds_up=adds_up))
    assert judgement.status is Status.PASS, judgement
    words = "copies of 'total' gain in step 0 is neither added up nor on average"
    assert (words in judgement.message) is adds_up
    judged = judge(make_run(METRIC, meter_shares))
    assert "dealt out" not in judged.message


def add_residual(state: State, losses: np.ndarray, place: Place, classes: int) -> State:
    """What is left of shares that add up to 1 for each example: rounding alone."""
    del place
    weights = np.exp(np.outer(losses, np.arange(classes)) / 2).astype(F)
    shares = weights / weights.sum(axis=1, keepdims=True)
    return {"kept": state["kept"] + (shares.sum(dtype=F) - F(len(losses)))}


@pytest.mark.parametrize("classes", [8, 3], ids=["one-device", "replicas"])
def test_what_cancels_in_a_sum_of_copies_is_no_matter_of_the_split(
    classes: int,
) -> None:
    """One side alone has a gain, of a few units in the last place."""
    update = partial(add_residual, classes=classes)
    judgement = judge(make_run({"kept": F(0)}, update))
    assert judgement.status is Status.PASS, judgement
    assert "dealt out" not in judgement.message
