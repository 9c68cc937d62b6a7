"""Whether sums over the replicas need no rounding."""

from __future__ import annotations

import math
from dataclasses import replace

from distbench.trace import WHOLE, Trace
from distbench.worker.state.values import have_same_bits, leaves_digits


def sums_exactly(recorded: Trace) -> bool:
    """Whether what the replicas add up can be added up without rounding.

    The data's own gradients are proved to be. A rule that changes gradients before
    the sum may round itself: then its results use up all digits, and the sum of what
    it makes of the shards need not be what it makes of their sum.

    Args:
        recorded: The steps of the reference.
    """
    bits = 1 + math.ceil(math.log2(max(2, recorded.replicas)))
    return all(
        have_same_bits(recorded.get(replace(key, phase="local_gradient")), value)
        or leaves_digits(value, bits)
        for key, value in recorded.select(phase="reduced_gradient", replica=WHOLE)
    )
