"""What replicas assign to a variable whose aggregation adds it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from evidence_changes import change_evidence
from training_simulator import observe

from distbench.compare.arrays.measure import BITWISE
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.diagnose.causes.rank import find_best
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.assigned import explain_by_added_copies
from distbench.diagnose.hypotheses.register import list_hypotheses
from distbench.trace import INITIAL, WHOLE, TraceKey, VariableInfo

KEY = TraceKey(step=0, phase="variable", variable="average", replica=0)
BEFORE, DUE = np.array([1.0, -2.0, 4.0]), np.array([1.5, -1.0, 3.0])
SHARDS = [np.array([1.0, 0.5, 2.0]), np.array([2.0, -2.5, 4.5])]


def name_cause(
    observed: np.ndarray,
    *,
    adds_up: bool = False,
    is_slot: bool = False,
    again: np.ndarray | None = None,
    added: Sequence[np.ndarray] = (),
    due: np.ndarray = DUE,
    ask: Callable[[Context], Iterable[Hypothesis]] = explain_by_added_copies,
) -> tuple[str, str] | None:
    """The code and words of what is wrong with an average that nobody trains.

    Args:
        observed: What every replica holds of it.
        adds_up: Whether its aggregation sums.
        is_slot: Whether it belongs to the optimizer.
        again: What one device makes of it if a sum of sums counts twice.
        added: What each shard's examples add to what is kept, if that is known.
        due: What one device makes of it.
        ask: The causes that are asked.
    """
    evidence = observe()
    phase: Literal["slot", "variable"] = "slot" if is_slot else "variable"
    info = VariableInfo(
        path="average",
        role=phase,
        shape=due.shape,
        dtype="float32",
        adds_up=adds_up,
    )
    kept = due - sum(ADDED)
    shards = [kept + own for own in added] or SHARDS
    alone = {KEY.at(r): shard for r, shard in enumerate(shards)}
    before = {replace(KEY, step=INITIAL, replica=WHOLE): BEFORE}
    reference = replace(
        evidence.reference,
        values={**evidence.reference.values, **alone, **before},
    )
    copies = {KEY.at(r): observed for r in range(2)}
    observed_run = replace(
        evidence.observed,
        variables=(*evidence.observed.variables, info),
        values={**evidence.observed.values, **copies},
    )
    if added:
        doubled = {KEY.at(r): kept + 2 * own for r, own in enumerate(added)}
        probe = replace(reference, values=doubled)
        evidence = change_evidence(evidence, probes={"doubled": probe})
    case = Pair(
        key=replace(KEY, phase=phase),
        relation="reference",
        against=GLOBAL,
        observed=observed,
        expected=due,
        margin=BITWISE,
        dtype="float32",
        base=BEFORE,
    )
    if again is not None:
        summed = replace(evidence.reference, values={KEY: again})
        evidence = change_evidence(evidence, again=summed)
    context = Context(
        evidence=replace(evidence, reference=reference, observed=observed_run),
        phase=phase,
        cases=(case,),
    )
    best = find_best(context, ask(context))
    if best is None or not best.full:
        return None
    return best.hypothesis.code, best.hypothesis.detail


def test_a_sum_of_what_each_makes_of_its_own_examples_is_told() -> None:
    found = name_cause(SHARDS[0] + SHARDS[1])
    assert found is not None
    assert found[0] == "statistics-not-synchronized"
    assert "its own examples" in found[1]


@pytest.mark.parametrize(
    ("again", "code"),
    [
        (BEFORE + 2 * (DUE - BEFORE), "double-reduction"),
        (DUE, "update-repeated"),
        (None, "update-repeated"),
    ],
    ids=["so", "not-so", "not-asked"],
)
def test_a_sum_that_is_summed_again_is_told_if_one_device_says_so(
    again: np.ndarray | None, code: str
) -> None:
    """That it is added N times is a guess."""
    observed = BEFORE + 2 * (DUE - BEFORE)
    found = name_cause(observed, again=again, ask=list_hypotheses)
    assert found is not None
    assert found[0] == code


def test_a_sum_of_equal_values_is_told_as_before() -> None:
    found = name_cause(2 * DUE)
    assert found is not None
    assert found[0] == "scale-error"


@pytest.mark.parametrize("adds_up", [True, False], ids=["adds-up", "by-hand"])
@pytest.mark.parametrize(
    ("observed", "code"),
    [
        (SHARDS[0] + SHARDS[1], "statistics-not-synchronized"),
        (2 * DUE, "scale-error"),
        (BEFORE + 2 * (DUE - BEFORE), "update-repeated"),
    ],
    ids=["own", "assigned", "added"],
)
def test_an_aggregation_that_does_not_sum_is_not_said_to(
    observed: np.ndarray, code: str, adds_up: bool
) -> None:
    found = name_cause(observed, adds_up=adds_up)
    assert found is not None
    assert found[0] == code
    assert ("adds up" in found[1]) == adds_up


def test_what_is_no_such_sum_is_not_told() -> None:
    assert name_cause(SHARDS[0] - SHARDS[1]) is None


def test_a_slot_that_adds_up_what_replicas_assign_or_add_is_told() -> None:
    assigned = name_cause(2 * DUE, is_slot=True, adds_up=True)
    assert assigned is not None
    assert assigned[0] == "scale-error"
    added = name_cause(BEFORE + 2 * (DUE - BEFORE), is_slot=True, adds_up=True)
    assert added is not None
    assert added[0] == "slot-repeated"


def test_a_slot_of_which_nothing_is_added_up_has_another_cause() -> None:
    assert name_cause(2 * DUE, is_slot=True) is None


def test_a_slot_is_no_statistic_of_the_examples() -> None:
    assert name_cause(SHARDS[0] + SHARDS[1], is_slot=True, adds_up=True) is None


ADDED = (np.array([0.25, 1.0, -0.5]), np.array([0.75, -0.5, 1.5]))
"""What each shard's examples add, and twice as much where each comes twice."""
KEPT = DUE - sum(ADDED)
"""What is left of the old value, whatever the examples are."""


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (2 * KEPT + sum(ADDED), "assign to it, of each the old value"),
        (2 * KEPT - BEFORE + sum(ADDED), "takes of the old value"),
    ],
    ids=["assigned", "added"],
)
def test_old_values_that_are_added_up_beside_own_parts_are_told(
    observed: np.ndarray, words: str
) -> None:
    found = name_cause(observed, adds_up=True, added=ADDED)
    assert found is not None
    assert found[0] == "scale-error"
    assert words in found[1]


DECAYED = 0.75 * BEFORE + sum(ADDED)
"""What is due of a sum that decays."""


@pytest.mark.parametrize(
    ("kept", "code", "words"),
    [
        (1.5, "statistics-not-synchronized", "2 times: each replica has that"),
        (0.5, "statistics-not-synchronized", "2 times as much is taken"),
        (0.375, "statistics-not-synchronized", "is divided by N = 2"),
        (0.5625, "hyperparameter-differs", "what 2 steps leave"),
        (1.0, "hyperparameter-differs", "add, and all of its old value"),
        (0.25, "hyperparameter-differs", "0.5 times its old value too little"),
    ],
    ids=["summed", "taken", "divided", "repeated", "kept", "other"],
)
def test_an_old_value_that_counts_by_the_replicas_is_told_without_an_aggregation(
    kept: float, code: str, words: str
) -> None:
    found = name_cause(
        kept * BEFORE + sum(ADDED), due=DECAYED, added=ADDED, ask=list_hypotheses
    )
    assert found is not None
    assert found[0] == code
    assert words in found[1]


@pytest.mark.parametrize(
    ("kept", "ways"),
    [
        (1.0, ("2 times: each replica has that", "all of its old value")),
        (0.25, ("is divided by N = 2", "what 2 steps leave")),
    ],
    ids=["kept", "divided"],
)
@pytest.mark.parametrize("adds_up", [False, True], ids=["by-hand", "adds-up"])
def test_of_what_is_left_by_half_all_is_told_that_comes_to_the_same(
    kept: float, ways: Sequence[str], adds_up: bool
) -> None:
    observed = kept * BEFORE + sum(ADDED)
    halved = 0.5 * BEFORE + sum(ADDED)
    found = name_cause(
        observed, due=halved, added=ADDED, adds_up=adds_up, ask=list_hypotheses
    )
    assert found is not None
    first = "2 times: it adds up" if adds_up and kept == 1.0 else ways[0]
    assert [words in found[1] for words in (first, *ways[1:])] == [True, True]
    assert found[1].count("comes to the same here") == 1


def test_parts_that_do_not_make_up_the_whole_are_own_statistics() -> None:
    others = (ADDED[0], 2 * ADDED[1])
    found = name_cause(2 * KEPT + sum(others), adds_up=True, added=others)
    assert found is not None
    assert found[0] == "statistics-not-synchronized"
