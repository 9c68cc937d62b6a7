"""State that steps in flight change in place, by what they made of an older value."""

from __future__ import annotations

import numpy as np

from distbench.compare.envelope import Envelope, find_end, stack_orders
from distbench.flight import Flight
from distbench.trace.numbers import Array

_WHOLLY = 0.9
"""Share of the error that this has to explain: one device does what the steps did, but
for when each has read which variable. It was 0.94 and more of nearly all variables,
and at most 0 where it had no part."""


def explain_as_stale(flight: Flight, envelope: Envelope) -> float:
    """The share of an error that older values explain; 0 where they do not explain it.

    A rule m ← β m + (1 - β) g that is written as m += (1 - β) (g - m) loses no step.
    But what it takes away for the decay is a share of the m that it has read, and not
    of the m that others have changed by the time at which it adds.

    Args:
        flight: The run; one device has added up its steps so.
        envelope: State after a round that is wrong.
    """
    if envelope.phase not in flight.torn or not flight.stale:
        return 0.0
    orders = stack_orders(flight, envelope.key)
    nearest = np.clip(envelope.observed, orders.min(axis=0), orders.max(axis=0))
    whole = float(np.linalg.norm(envelope.observed - nearest))
    early, *later = (find_end(trace, envelope.key) for trace in flight.stale)
    left = _fit(envelope.observed - early, [late - early for late in later])
    share = 1 - left / whole if 0 < whole < np.inf else 0.0
    return share if share >= _WHOLLY else 0.0


def _fit(error: Array, later: list[Array]) -> float:
    """The norm of what is left of an error when some steps have read later.

    What each of them changes by that adds up, but for what follows of it for others.
    Greedily, the one that takes away most is taken.
    """
    left = float(np.linalg.norm(error))
    while later:
        rests = [float(np.linalg.norm(error - moved)) for moved in later]
        best = int(np.argmin(rests))
        if not rests[best] < left:
            break
        left, error = rests[best], error - later.pop(best)
    return left
