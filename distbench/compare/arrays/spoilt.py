"""Steps in which something is not finite, as where a loss scale is too large."""

from __future__ import annotations

from dataclasses import replace

from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Trace, Values
from distbench.trace.numbers import is_finite


def find_spoilt(evidence: Evidence) -> frozenset[int]:
    """Steps in which the loss or a gradient of the global batch is not finite.

    What its shards alone come to is no matter: of a mean they have more than replicas.
    """
    whole = Values(evidence.reference.values).keep(lambda key: key.replica == WHOLE)
    return list_spoilt(replace(evidence.reference, values=whole))


def overflow_alone(evidence: Evidence) -> bool:
    """Whether a shard alone has Inf or NaN in a step in which its replica has none.

    The loss of a mean is of the shard alone there, and a replica has its share of it.
    """
    return any(
        not finite and evidence.observed.find_finite(step).get(replica, False)
        for step in range(evidence.reference.steps)
        for replica, finite in evidence.reference.find_finite(step).items()
        if replica != WHOLE
    )


def list_spoilt(trace: Trace) -> frozenset[int]:
    """Steps of which some loss or local gradient is not finite.

    What a metric shows is no loss: of no examples it may be 0/0.
    """
    own = Values(trace.values).keep(
        lambda key: key.phase in COMPUTED and (key.phase != "loss" or not key.variable)
    )
    return frozenset(key.step for key, value in own.items() if not is_finite(value))
