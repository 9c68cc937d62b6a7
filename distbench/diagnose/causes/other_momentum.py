"""Averages of the replicas' own that weigh old and new otherwise than on one device."""

from __future__ import annotations

import numpy as np

from distbench.compare.arrays.changes import find_changes
from distbench.compare.arrays.ratio import are_same_factors
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import Row, drop_empty, fit_weights, leaves_nothing

_LEAST = 1e-3
"""Of a share of an old value that is no larger nothing is known: it may be rounding."""


def fit_momentum(context: Context) -> float | None:
    """How many times as far an average goes as on one device, to the same examples.

    One device goes a part of the way to x, e = κ (x - b), and the copies on average
    κ' (x - b'), from the mean of what they hold: (κ'/κ) e + κ' (b - b'). Nothing sets
    b' right again. Where b' never is another one than b, κ' is not known: more of
    another x looks alike.

    Args:
        context: Wrong totals of one variable, which is read as the mean of its copies.

    Returns:
        κ'/κ; None where something else explains it as well, or this does not.
    """
    rows = []
    for number, case in enumerate(context.cases):
        info, step = context.infos[case.key.variable], case.key.step
        changes = find_changes(context.evidence, info, step)
        if changes is None or not (info.averages or context.replicas == 1):
            return None
        before = np.mean([copy.before for copy in changes.replicas], axis=0)
        change = np.mean([copy.change for copy in changes.replicas], axis=0)
        features = changes.whole.change, changes.whole.before - before
        rows.append(Row(number=number, target=change, features=features))
    if any(len(row.features) < 2 for row in drop_empty(rows, 1)):
        return None
    weights = fit_weights(rows)
    if weights is None or not leaves_nothing(rows, weights):
        return None
    times, part = map(float, weights)
    if times <= 0 or not (_LEAST < part < 1 and _LEAST < part / times <= 1):
        return None
    # What a replica adds may count for all of them, or be divided among them.
    n = context.replicas
    is_plain = any(are_same_factors(times, own) for own in (1.0, float(n), 1 / n))
    return None if is_plain else times
