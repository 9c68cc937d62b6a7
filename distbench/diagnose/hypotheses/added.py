"""What is due to the sum once, and every replica adds to its own gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from distbench.compare.pair import Pair
from distbench.compare.pull import apply_pull, fit_pull
from distbench.compare.values import Array, measure_size
from distbench.diagnose.addends import list_known
from distbench.diagnose.context import Context, Hypothesis, find_tolerance, take_rows
from distbench.trace import WHOLE, Phase


def explain_by_addition(context: Context) -> Iterator[Hypothesis]:
    """A decay, or noise, that is added before the sum: it arrives N times.

    How much is added one device tells, which does so to the gradient of the global
    batch. So nothing is fitted: observed = Σ g_r + N d.
    """
    n = context.replicas
    if context.phase != "reduced_gradient" or n == 1:
        return
    predicted: dict[int, Array] = {}
    decays: list[bool] = []
    for source in list_known(context):
        due = _find_whole(context, source.case, "reduced_gradient")
        own = _find_whole(context, source.case, "local_gradient")
        if due is None or own is None:
            return
        added = due - own
        predicted[source.number] = np.asarray(sum(source.terms) + n * added)
        if measure_size(added) > _find_widest(context, source.case):
            decays.append(_is_decay(context, source.case, added))
    if not decays:
        return
    what = "the weight decay" if all(decays) else "what one device adds once, as noise,"
    yield Hypothesis(
        code="weight-decay-repeated" if all(decays) else "nonlinear-before-reduction",
        predicted=predicted,
        detail=f"every replica adds {what} to its own gradient, so that the sum over "
        f"the replicas holds it N = {n} times",
        ratio=float(n),
    )


def _find_whole(context: Context, case: Pair, phase: Phase) -> Array | None:
    """What one device has of the global batch in a phase, in the rows of a case."""
    key = replace(case.key, phase=phase, replica=WHOLE)
    value = context.evidence.reference.get(key)
    return None if value is None else take_rows(value, case)


def _find_widest(context: Context, case: Pair) -> float:
    return measure_size(np.asarray(find_tolerance(case, context.replicas)))


def _is_decay(context: Context, case: Pair, added: Array) -> bool:
    """Whether it is a θ + b sign(θ) of the variable, as decays and penalties are."""
    key = case.key
    state = context.evidence.get_before(key.step, "variable", key.variable)
    if state is None:
        return False
    theta = take_rows(state, case)
    pull = fit_pull(theta, added)
    if pull is None:
        return False
    rest = measure_size(added - apply_pull(pull, theta))
    return rest <= _find_widest(context, case)
