"""The slices that a sparse gradient is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import share_by_size
from distbench.diagnose.clues.cases import find_rounding, take_rows
from distbench.diagnose.clues.context import Context
from distbench.trace import WHOLE, SparseRows
from distbench.trace.numbers import Array


def find_slices(context: Context, case: Pair) -> tuple[SparseRows, ...]:
    """The slices that a wrong gradient is made of, by replica; empty if not known."""
    if context.phase == "local_gradient":
        # Of what was seen, with each row but once, any of them would be just that.
        return _find_due(context, case)
    if context.phase == "applied_gradient":
        value = context.evidence.observed.get(
            replace(case.key, phase="reduced_gradient")
        )
        if isinstance(value, SparseRows):
            return (value,)
    return context.find_slices(case) or _find_picked(context, case)


def _find_picked(context: Context, case: Pair) -> tuple[SparseRows, ...]:
    """The replicas' own slices where one device keeps but one of them for a row."""
    slices = context.find_own_slices(case)
    handed = context.find_changed(case)
    if not handed or len(handed) != len(slices):
        return ()
    allowed = find_rounding(case, handed)
    picks = all(
        np.all(np.abs(pick_slices((own,), case, seen) - seen) <= allowed)
        for own, seen in zip(slices, handed, strict=True)
    )
    return slices if picks else ()


def _find_due(context: Context, case: Pair) -> tuple[SparseRows, ...]:
    """What one device computes: of the shards, where they make up the whole batch."""
    reference = context.evidence.reference
    whole = reference.get(case.key)
    if not isinstance(whole, SparseRows):
        return ()
    shards = reference.get_replicas(case.key) if case.key.replica == WHOLE else ()
    sizes = context.get_shards(case)
    # Each alone is its share of a sum, or a mean of its own.
    for weights in ([1.0] * len(sizes), share_by_size(sizes)):
        parts = tuple(
            replace(shard, values=weight * np.asarray(shard.values, np.float64))
            for shard, weight in zip(shards, weights, strict=False)
            if isinstance(shard, SparseRows)
        )
        total = np.asarray(sum(part.to_dense() for part in parts))
        if parts and context.are_near(case, case.expected, take_rows(total, case)):
            return parts
    return (whole,)


def add_rows(slices: SparseRows) -> SparseRows:
    """Each row once, in the order of their numbers."""
    return slices.merge()


def gather_rows(slices: SparseRows) -> SparseRows:
    """Each row once, in the order in which rows come first."""
    return slices.merge(as_they_come=True)


def join_slices(slices: Sequence[SparseRows]) -> SparseRows:
    """The slices of all, one after the other, in float64."""
    return SparseRows(
        indices=np.concatenate([s.indices for s in slices]),
        values=np.concatenate([np.asarray(s.values, np.float64) for s in slices]),
        shape=slices[0].shape,
    )


def pick_slices(slices: Sequence[SparseRows], case: Pair, seen: Array) -> Array:
    """For each row of a case that slice which is nearest to what was seen of it."""
    joined = join_slices(slices)
    rows = np.arange(len(seen)) if case.rows is None else case.rows
    picked = np.zeros_like(seen)
    for place, row in enumerate(rows):
        found = joined.values[joined.indices == row]
        if len(found):
            rest = np.abs(found - seen[place]).reshape(len(found), -1)
            picked[place] = found[int(np.argmin(rest.sum(axis=1)))]
    return picked
