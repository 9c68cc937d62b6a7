"""Shards, and steps, that have terms which the largest shard of the first one lacks.

What stands under a floor, or over a hinge, is not there on every shard nor in every
step: the largest one may give a plain sum, and another one that sum and a mean of its
examples beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distbench.compare.arrays.noise import Noise
from distbench.compare.nature.doubled import (
    PLAIN,
    Margins,
    Places,
    are_terms,
    find_loss_margins,
    list_losses,
    list_repeated,
    take_gradients,
)
from distbench.compare.nature.lost import find_margins
from distbench.evidence import Evidence
from distbench.trace import WHOLE


def has_both_kinds(evidence: Evidence, noise: Noise) -> bool:
    """Whether some shard, in some step, has terms of both kinds beyond doubt.

    A penalty on the way from the start, a loss that is annealed, or a statistic of the
    own examples that counts from some value on.
    """
    reference = evidence.reference
    for step in range(reference.steps):
        whole = take_gradients(reference, WHOLE, step)
        margins = find_margins(noise, whole, step)
        for replica in range(reference.replicas):
            shard = take_gradients(reference, replica, step)
            if not whole or set(shard) != set(whole):
                continue
            gradients = list_repeated(evidence, shard, replica, step)
            losses = list_losses(evidence, replica, step)
            if _have_both(gradients, margins, is_mixed=True) or (
                _have_both(gradients, margins)
                and losses
                and _have_both(losses, find_loss_margins(noise, losses, 0.0, step))
            ):
                return True
    return False


def _have_both(
    repeated: Sequence[Places], margins: Margins, *, is_mixed: bool = False
) -> bool:
    """Whether values grow alike with repetition, and have parts of both kinds.

    A limit on gradients that binds on some shards makes an element, or all of them, of
    the other kind. None is of both kinds then, and no loss tells of it.

    Args:
        repeated: Of a shard with its examples once, twice and three times.
        margins: How far equal ones may lie apart.
        is_mixed: Whether one element has to have both.
    """
    if not repeated or not are_terms(repeated, margins):
        return False
    once, twice, _ = repeated
    sums = [abs(twice[p] - once[p]) > PLAIN * margins[p] for p in once]
    means = [abs(2 * once[p] - twice[p]) > PLAIN * margins[p] for p in once]
    if is_mixed:
        return any(np.any(s & m) for s, m in zip(sums, means, strict=True))
    return any(map(np.any, sums)) and any(map(np.any, means))
