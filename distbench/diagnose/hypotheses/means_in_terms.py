"""A loss of several terms, of which some are means over each replica's own weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import (
    Row,
    fit_weights,
    leaves_nothing,
    name_weights,
    predict_rows,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE
from distbench.trace.numbers import Array


def explain_by_means_in_terms(context: Context) -> Iterator[Hypothesis]:
    """Some terms of the loss are means over own weights, and the others are right.

    What each term of each shard gives alone one device tells. What it should count in
    the sum is fitted to one device's, and so is what it counts on the cluster: a mean
    over own weights counts 1, or 1/N, where c_r = W_r / ΣW is due. Several such terms
    may have the same weights, so that no gradient shows them apart.
    """
    if not context.root or context.phase == "loss" or context.replicas == 1:
        return
    terms, n = len(context.evidence.terms), context.replicas
    seen_in: list[Array] = []
    due_in: list[Array] = []
    rows_of: list[list[Row]] = []
    for cases in context.list_steps().values():
        rows = [
            Row(number=number, target=case.observed, features=features)
            for number, case in cases
            if (features := _list_features(context, number))
        ]
        due = [replace(row, target=context.cases[row.number].expected) for row in rows]
        seen, wanted = fit_weights(rows), fit_weights(due)
        if len(rows) < len(cases) or seen is None or wanted is None:
            return
        if not (leaves_nothing(rows, seen) and leaves_nothing(due, wanted)):
            return
        seen_in.append(seen.reshape(terms, n))
        due_in.append(wanted.reshape(terms, n))
        rows_of.append(rows)
    if not rows_of:
        return  # nothing that is wrong is finite
    wrong = _find_wrong(seen_in, due_in)
    if not 0 < len(wrong) < terms or not _are_shares(due_in, wrong):
        return
    for code, words, count in (
        ("mean-of-means", " divided by N, so that every shard weighs 1/N", 1 / n),
        ("loss-not-scaled", f", not divided by N = {n}", 1.0),
        ("loss-scaled-twice", ", divided by N twice", 1 / n**2),
    ):
        if all(np.all(abs(s[wrong] - count) <= SAME * count) for s in seen_in):
            predicted: dict[int, Array] = {}
            for rows, due_of in zip(rows_of, due_in, strict=True):
                weights = due_of.copy()
                weights[wrong] = count
                predicted |= predict_rows(rows, weights.ravel())
            shares = name_weights(due_in[0][wrong[0]])
            numbers = " and ".join(f"number {place + 1}" for place in wrong)
            yield Hypothesis(
                code=code,
                predicted=predicted,
                detail=f"of the {terms} terms of the loss, in the order in which they "
                f"are added up, {numbers} is a mean over each replica's own weights "
                f"(tokens, positives, sample weights){words}; of the weights of all "
                f"examples the shards hold {shares}",
            )
            return


def _list_features(context: Context, number: int) -> tuple[Array, ...]:
    """What each term of each shard gives for a sum; empty where that is not known."""
    case = context.cases[number]
    if case.key.replica != WHOLE:
        return ()
    found = [
        term.get(case.key.at(replica))
        for term in context.evidence.terms
        for replica in range(context.replicas)
    ]
    known = [take_rows(value, case) for value in found if value is not None]
    return tuple(known) if len(known) == len(found) else ()


def _find_wrong(seen: Sequence[Array], due: Sequence[Array]) -> list[int]:
    """Places of the terms that count otherwise than they should in any step."""
    off = np.any(np.abs(np.asarray(seen) - np.asarray(due)) > SAME, axis=(0, 2))
    return [int(place) for place in np.flatnonzero(off)]


def _are_shares(due: Sequence[Array], wrong: Sequence[int]) -> bool:
    """Whether terms should be weighed means, and not by the numbers of replicas."""
    totals = [step[place].sum() for step in due for place in wrong]
    uneven = [np.ptp(step[place]) > SAME for step in due for place in wrong]
    return bool(np.all(np.abs(np.asarray(totals) - 1) <= SAME)) and any(uneven)
