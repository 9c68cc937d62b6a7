"""What tapes gave in all micro-steps of a step, added up, for its local gradients."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from distbench.evidence import Evidence, Inside
from distbench.trace import WHOLE, Trace, TraceKey, Values
from distbench.trace.intermediates import list_places


def take_sums(evidence: Evidence, inside: Inside, steps: range) -> Evidence:
    """The evidence up to a step, by sums of what tapes gave for each variable.

    What a step does to such sums comes between them and what it hands over: a clip of
    them is one before the reduction then, and not another gradient of the loss.

    Args:
        evidence: What was seen, its local gradients being what the step hands over, or
            none where it updates by hand.
        inside: What tapes gave.
        steps: Those of which it is taken; none after them is kept.
    """
    return replace(
        evidence,
        observed=_take_sums(evidence.observed, inside.observed, steps),
        reference=_take_sums(evidence.reference, inside.reference, steps),
    )


def _take_sums(trace: Trace, given: Trace, steps: range) -> Trace:
    # Held, and not read: large ones lie on disk.
    values = Values(trace.values).keep(lambda key: key.step < steps.stop)
    for step, info in product(steps, trace.variables):
        places = list(list_places(given, step, info.path))
        for replica in (WHOLE, *range(trace.replicas)):
            parts = [given.get(place.at(replica)) for place in places]
            arrays = [part for part in parts if isinstance(part, np.ndarray)]
            key = TraceKey(
                step=step, phase="local_gradient", variable=info.path, replica=replica
            )
            # Of several updates nobody knows which of them took which.
            is_one = replace(key, call=1) not in values
            if is_one and arrays and len(arrays) == len(parts):
                values[key] = np.sum(arrays, axis=0)
    return replace(trace, values=values)
