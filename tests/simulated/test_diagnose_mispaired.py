"""Sparse gradients whose values and indices are put in order apart from each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from gradient_values import Gradients, add_up, add_values
from planted_case import Case, check_named, check_passed, run_case
from training_simulator import TABLE, Fault
from wrong_steps import add_rows

from distbench.trace import SparseRows

Order = Callable[[Sequence[SparseRows], int], np.ndarray]
"""Which slice comes at each place on a replica, of those of all replicas by rank."""

SETUP = {"replicas": 3, "shards": (7, 4, 5)}


def gather(parts: Sequence[SparseRows], ranks: Sequence[int]) -> np.ndarray:
    ends = np.cumsum([len(part.indices) for part in parts])
    blocks = np.split(np.arange(ends[-1]), ends[:-1])
    return np.concatenate([blocks[rank % len(blocks)] for rank in ranks])


def sort_all(parts: Sequence[SparseRows], own: int) -> np.ndarray:
    return np.argsort(add_values(parts).indices, kind="stable")


def sort_each(parts: Sequence[SparseRows], own: int) -> np.ndarray:
    first, places = 0, []
    for part in parts:
        places.append(first + np.argsort(part.indices, kind="stable"))
        first += len(part.indices)
    return np.concatenate(places)


def turn(parts: Sequence[SparseRows], places: int) -> np.ndarray:
    return np.roll(np.arange(sum(len(part.indices) for part in parts)), places)


def add_as_they_come(slices: SparseRows) -> SparseRows:
    """Each row once, in the order of their first slices, as `tf.unique` has them."""
    rows = np.array(list(dict.fromkeys(slices.indices.tolist())))
    values = slices.to_dense()[rows].astype(slices.values.dtype)
    return replace(slices, indices=rows, values=values)


ORDERS: dict[str, Order] = {
    "gathered from replica 1 on": lambda p, own: gather(p, range(1, 4)),
    "gathered from replica 2 on": lambda p, own: gather(p, range(2, 5)),
    "gathered last replica first": lambda p, own: gather(p, (2, 1, 0)),
    "gathered own replica first": lambda p, own: gather(p, range(own, own + 3)),
    "sorted by row": sort_all,
    "sorted by row in each replica": sort_each,
    "in reverse": lambda p, own: turn(p, 0)[::-1],
    "turned by 3": lambda p, own: turn(p, 3),
    "turned by -5": lambda p, own: turn(p, -5),
    "turned by as many as each replica has": lambda p, own: turn(
        p, len(p[own].indices)
    ),
}


def reorder(
    order: Order,
    sides: Sequence[str],
    form: Callable[[Sequence[SparseRows]], Sequence[SparseRows]] = list,
) -> Fault:
    """Gather the table's slices, and put their indices or values in another order."""

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        parts = form([gradients[TABLE] for gradients in locals_])
        whole, total = add_values(parts), add_up(locals_)
        made = []
        for own in range(len(locals_)):
            places = order(parts, own)
            moved = {side: getattr(whole, side)[places] for side in sides}
            made.append({**total, TABLE: replace(whole, **moved)})
        return made

    return Fault(reduce=reduce)


def told(fault: Fault) -> str:
    """What is said of a fault, which has to be the one cause of everything."""
    case = Case(
        name="mispaired",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        fault=fault,
        steps=2,
        setup=SETUP,
    )
    judgement = run_case(case)
    check_named(case, judgement)
    assert judgement.findings[0].confidence > 0.999
    return judgement.findings[0].explanation


@pytest.mark.parametrize("words", ORDERS)
def test_indices_in_another_order_than_their_values_are_told(words: str) -> None:
    said = told(reorder(ORDERS[words], ["indices"]))
    assert f"their indices are {words}" in said


@pytest.mark.parametrize("words", ["sorted by row", "sorted by row in each replica"])
def test_values_in_another_order_than_their_indices_are_told(words: str) -> None:
    said = told(reorder(ORDERS[words], ["values"]))
    assert f"their values are {words}" in said


@pytest.mark.parametrize(
    ("form", "order", "words"),
    [
        (
            lambda parts: [add_rows(part) for part in parts],
            "turned by 3",
            "each replica's rows, added up in the order of their numbers,",
        ),
        (
            lambda parts: [add_as_they_come(part) for part in parts],
            "gathered last replica first",
            "each replica's rows, added up in the order of their first slices,",
        ),
        (
            lambda parts: [add_as_they_come(add_values(parts))],
            "sorted by row",
            "rows, added up in the order of their first slices,",
        ),
    ],
    ids=["numbers", "first", "all"],
)
def test_rows_that_were_added_up_before_are_told_as_such(form, order, words):
    said = told(reorder(ORDERS[order], ["indices"], form))
    assert f": {words} have" in said
    assert f"their indices are {order}" in said


@pytest.mark.parametrize(
    "words", ["gathered last replica first", "sorted by row", "turned by 3"]
)
def test_both_in_the_same_other_order_are_right(words: str) -> None:
    fault = reorder(ORDERS[words], ["indices", "values"])
    case = Case(name="", code="", phase="", fault=fault, setup=SETUP)
    check_passed(run_case(case))


def test_an_order_that_nobody_has_a_name_for_is_not_guessed() -> None:
    def shuffle(parts: Sequence[SparseRows], own: int) -> np.ndarray:
        return np.random.default_rng(7).permutation(turn(parts, 0))

    case = Case(
        name="", code="", phase="", fault=reorder(shuffle, ["indices"]), steps=2
    )
    assert run_case(case).findings[0].code == "unexplained"


def test_pairs_that_are_also_scaled_are_not_guessed() -> None:
    """They are paired as told, and something else is done besides."""
    fault = reorder(sort_all, ["indices"])

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        made = fault.reduce(locals_, step)
        return [
            {**g, TABLE: replace(g[TABLE], values=0.9 * g[TABLE].values)} for g in made
        ]

    case = Case(name="", code="", phase="", fault=Fault(reduce=reduce), steps=2)
    assert run_case(case).findings[0].code == "unexplained"


def test_a_transformer_that_sorts_indices_alone_is_told() -> None:
    def transform(gradients: Gradients, replica: int, step: int) -> Gradients:
        table = gradients[TABLE]
        return {**gradients, TABLE: replace(table, indices=np.sort(table.indices))}

    case = Case(
        name="mispaired",
        code="sparse-rows",
        phase="applied_gradient",
        variable=TABLE,
        fault=Fault(transform=transform),
    )
    judgement = run_case(case)
    check_named(case, judgement)
    assert "sorted by row" in judgement.findings[0].explanation
