"""Slices that are cut to as many as the replica with the fewest has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis


def explain_by_shortest(context: Context) -> Iterator[Hypothesis]:
    """Each replica's first slices are summed, and what it has beyond them is lost.

    Users cut them to gather tensors of equal shapes; slices go with the examples.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    predicted = {}
    for number, case in context.list_cases():
        slices = context.find_slices(case)
        counts = [len(one.indices) for one in slices]
        if len(slices) != context.replicas or len(set(counts)) == 1:
            continue
        fewest = min(counts)
        kept = [
            replace(one, indices=one.indices[:fewest], values=one.values[:fewest])
            for one in slices
        ]
        total = np.sum([one.to_dense() for one in kept], axis=0)
        predicted[number] = take_rows(np.asarray(total), case)
    yield Hypothesis(
        code="sparse-rows",
        predicted=predicted,
        detail="of each replica only as many slices count as the one with the fewest "
        "has; gather all of them, or fill up with zeros",
    )
