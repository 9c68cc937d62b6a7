"""What tapes gave in all micro-steps of a step, added up, for its local gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distbench.evidence import Evidence, Inside
from distbench.trace import WHOLE, Trace, TraceKey, Values
from distbench.trace.intermediates import list_places


def take_sums(evidence: Evidence, inside: Inside, step: int) -> Evidence:
    """The evidence up to a step, by sums of what tapes gave for each variable in it.

    What a step does to such sums comes between them and what it hands over: a clip of
    them is one before the reduction then, and not another gradient of the loss.

    Args:
        evidence: What was seen, its local gradients being what the step hands over.
        inside: What tapes gave.
        step: Which one; none after it is kept.
    """
    return replace(
        evidence,
        observed=_take_sums(evidence.observed, inside.observed, step),
        reference=_take_sums(evidence.reference, inside.reference, step),
    )


def _take_sums(trace: Trace, given: Trace, step: int) -> Trace:
    # Held, and not read: large ones lie on disk.
    values = Values(trace.values).keep(lambda key: key.step <= step)
    for info in trace.variables:
        places = list(list_places(given, step, info.path))
        for replica in (WHOLE, *range(trace.replicas)):
            parts = [given.get(place.at(replica)) for place in places]
            arrays = [part for part in parts if isinstance(part, np.ndarray)]
            key = TraceKey(
                step=step, phase="local_gradient", variable=info.path, replica=replica
            )
            if key in values and arrays and len(arrays) == len(parts):
                values[key] = np.sum(arrays, axis=0)
    return replace(trace, values=values)
