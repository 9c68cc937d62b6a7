"""What is due to the sum once, and every replica adds to its own gradient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.hypotheses.decay_in_sums import (
    find_additions,
    is_any,
    is_decay,
)


def explain_by_addition(context: Context) -> Iterator[Hypothesis]:
    """A decay, or noise, that is added before the sum: it arrives N times.

    How much is added one device tells, which does so to the gradient of the global
    batch. So nothing is fitted: observed = Σ g_r + N d.
    """
    n = context.replicas
    if context.phase != "reduced_gradient" or n == 1:
        return
    additions = find_additions(context)
    predicted = {
        one.source.number: np.asarray(sum(one.source.terms) + n * one.added)
        for one in additions
    }
    decays = [is_decay(context, [one]) for one in additions if is_any(context, one)]
    if not decays:
        return
    what = "the weight decay" if all(decays) else "what one device adds once, as noise,"
    yield Hypothesis(
        code="weight-decay-repeated" if all(decays) else NONLINEAR,
        predicted=predicted,
        detail=f"every replica adds {what} to its own gradient, so that the sum over "
        f"the replicas holds it N = {n} times",
        ratio=float(n),
    )
