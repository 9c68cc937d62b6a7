"""Whether the replicas' losses are averaged, and not added up, to make one device's."""

from __future__ import annotations

import numpy as np

from distbench.evidence import Evidence
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import densify


def averages_losses(evidence: Evidence, first: int) -> bool:
    """Whether that is declared, or comes nearer to one device's loss.

    In all steps from one on, so that those in which a loss is 0, or only the rounding
    of terms that cancel, tell nothing. Where somebody else averages gradients, a loss
    is then N times its share.

    Args:
        evidence: What was seen.
        first: The step whose gradients are asked about. A free run goes another way
            after a wrong one, so there it tells alone.
    """
    declared = evidence.subject.loss_reduction
    if declared is not None:
        return declared == "mean"
    n = evidence.observed.replicas
    last = first if evidence.tier == "free" else evidence.reference.steps - 1
    misses = np.zeros(2)
    for step in range(first, last + 1):
        key = TraceKey(step=step, phase="loss", variable="")
        whole = evidence.reference.get(key.at(WHOLE))
        losses = [evidence.observed.get(key.at(replica)) for replica in range(n)]
        found = [float(densify(loss)) for loss in losses if loss is not None]
        if whole is None or len(found) < n:
            continue
        due, total = float(densify(whole)), sum(found)
        if np.isfinite([due, *found]).all():
            misses += np.abs([total / n - due, total - due])
    return bool(misses[0] < misses[1])


def is_nearer_mean(total: float, due: float, replicas: int) -> bool:
    """Whether the mean of losses is nearer to what is due than their sum."""
    return abs(total / replicas - due) < abs(total - due)
