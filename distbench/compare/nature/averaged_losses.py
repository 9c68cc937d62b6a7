"""Whether the replicas' losses are averaged, and not added up, to make one device's."""

from __future__ import annotations

import numpy as np

from distbench.compare.arrays.values import densify
from distbench.evidence import Evidence
from distbench.trace import WHOLE, TraceKey


def averages_losses(evidence: Evidence) -> bool:
    """Whether that is declared, or comes nearer to one device's loss.

    In the first step in which all of them are known, and finite. Where somebody else
    averages gradients, a loss is then N times its share.
    """
    declared = evidence.subject.loss_reduction
    if declared is not None:
        return declared == "mean"
    n = evidence.observed.replicas
    for step in range(evidence.reference.steps):
        key = TraceKey(step=step, phase="loss", variable="")
        whole = evidence.reference.get(key.at(WHOLE))
        losses = [evidence.observed.get(key.at(replica)) for replica in range(n)]
        found = [float(densify(loss)) for loss in losses if loss is not None]
        if whole is None or len(found) < n:
            continue
        due = float(densify(whole))
        if np.isfinite([due, *found]).all():
            return is_nearer_mean(sum(found), due, n)
    return False


def is_nearer_mean(total: float, due: float, replicas: int) -> bool:
    """Whether the mean of losses is nearer to what is due than their sum."""
    return abs(total / replicas - due) < abs(total - due)
