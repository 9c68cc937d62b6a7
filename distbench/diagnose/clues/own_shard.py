"""Replicas that compute what their shards alone give, though that is no part of it."""

from __future__ import annotations

import numpy as np

from distbench.diagnose.clues.context import Context, find_shards
from distbench.trace import COMPUTED, WHOLE


def describe_alone(context: Context) -> str:
    """Says so of losses or local gradients of which that is true, or `""`.

    A program that divides by the largest weight of its batch, or branches on its norm,
    does on a shard what is right for no part of the global batch.
    """
    if context.replicas == 1 or context.evidence.measure.shards_known:
        return ""
    for case in context.cases:
        terms = find_shards(context, case)
        is_first = case.key.phase in COMPUTED
        if not is_first or case.key.replica != WHOLE or not terms:
            return ""
        if not context.matches(case, np.sum(terms, axis=0)):
            return ""
    return (
        "every replica has what its shard alone gives on one device, and there these "
        "do not make up what the global batch gives: something is taken of the own "
        "shard alone, such as its largest value, a norm, or a branch on either"
    )
