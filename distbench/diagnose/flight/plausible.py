"""Whether steps that are said to be lost or extra tell more than chance would."""

from __future__ import annotations

from math import lgamma, log

import numpy as np

from distbench.trace.numbers import Array

_ONE_ROUNDING = float(np.finfo(np.float32).eps)
"""Of itself, what an element is known to; narrower types have wider rounding, and what
they leave is counted for an error then, before and after."""


def count_saved(
    off: Array, left: Array, reach: Array, scale: Array, chosen: int, choices: int
) -> float:
    """By how much steps shorten the description of an error, in nats.

    An error can be told as it is: which elements are off, and by how much. It can be
    told as that of some steps too: which steps, then what these leave. Steps that are
    its cause shorten that; those that only happen to point there, of many that could,
    do not, since which they are has to be told as well (minimum description length).

    An element that is off by x from what may be anywhere in a width w has w + 2 x to
    be found in; x is told once, as the root mean square of the elements that are off,
    so that one that a step meets by chance tells no more than the others. Which n of d
    elements are off is one of C(d, n). Each step that is chosen is one of so many
    choices, or it is the end of the list; and that they add up, and do not multiply,
    is one of two.

    Args:
        off: By how much each element lies beyond what the orders leave.
        left: By how much it lies beyond that with the steps.
        reach: How wide what the orders leave is.
        scale: How large each element is, which rounding is a share of.
        chosen: How many changes were taken.
        choices: Of how many.

    Returns:
        Positive where the steps tell more than has to be told of them.
    """
    known = _ONE_ROUNDING * np.abs(scale)
    before, after = np.abs(off) > known, np.abs(left) > known
    counts = before | after
    wide = (reach + known)[counts]
    sizes = [2 * float(np.sqrt(np.mean(each[counts] ** 2))) for each in (off, left)]
    shorter = float(np.log((wide + sizes[0]) / (wide + sizes[1])).sum())
    places = _count_places(off.size, int(before.sum())) - _count_places(
        off.size, int(after.sum())
    )
    return shorter + places - chosen * log(choices + 1) - log(2)


def _count_places(size: int, some: int) -> float:
    """The logarithm of C(size, some)."""
    return lgamma(size + 1) - lgamma(some + 1) - lgamma(size - some + 1)
