"""Whether the order of examples leads a gradient, and more than rounding does."""

from __future__ import annotations

import math

import numpy as np

from distbench.trace import TraceKey
from distbench.trace.numbers import densify
from distbench.worker.one_device.rearranged import Gradients, Order, Rearranged
from distbench.worker.state.values import are_near

_MOVES = 3
"""Roundings under all of which another order changes a gradient that it leads."""
_ROUNDED = 8
"""So many times as far as rounding moves a gradient does an order that leads it."""


class Ordering:
    """Tells gradients that an order leads from those that are rounding, step by step.

    A gradient that rounding was once seen to change as much as another order does is
    not asked about again.
    """

    def __init__(self) -> None:
        self._rounded: set[tuple[int, str]] = set()  # call and variable

    def leads(self, step: Rearranged) -> bool:
        """Whether the order leads a gradient of the batch or of a shard of a step."""
        return any(
            self._is_led(step, replica, order)
            for replica, order in step.orders.items()
            if len(order) > 1
        )

    def _is_led(self, step: Rearranged, replica: int, order: Order) -> bool:
        """Whether another order changes some gradient, and more than rounding does.

        A deep network may magnify the rounding of a sum, and whether it does hangs on
        the last bits of all that it computes: so where these are moved another order
        has to change the same gradient each time, and none the one of this order.
        """
        due, turned = step.due[replica], np.roll(order, 1)
        changed = {
            key
            for key, value in step.run(replica, turned).items()
            if (key.call, key.variable) not in self._rounded
            and not (key in due and are_near(due[key], value, step.dtype))
        }
        noise = dict.fromkeys(changed, 0.0)
        for number in () if step.tier == "exact" else range(1, _MOVES + 1):
            if not changed:
                break
            own = step.run(replica, order, number)
            other = step.run(replica, turned, number)
            noise = {k: max(noise[k], _measure(due, own, k)) for k in changed}
            led = {k for k in changed if _measure(due, other, k) > _ROUNDED * noise[k]}
            self._rounded |= {(key.call, key.variable) for key in changed - led}
            changed = led
        return bool(changed)


def _measure(due: Gradients, found: Gradients, key: TraceKey) -> float:
    """By what share of its norm a gradient is another one than is due."""
    if key not in found:
        return 0.0
    if key not in due:
        return math.inf
    wanted, seen = densify(due[key]), densify(found[key])
    if wanted.shape != seen.shape:
        return math.inf
    change, size = np.linalg.norm(seen - wanted), np.linalg.norm(wanted)
    return float(change / max(size, np.finfo(np.float64).tiny))
