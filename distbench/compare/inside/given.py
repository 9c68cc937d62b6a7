"""What tapes gave in each micro-step, and whether replicas have their parts of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from distbench.compare.arrays.ratio import fit_common_ratio
from distbench.compare.inside.nearness import Array, find_lost, make_near
from distbench.evidence import Inside
from distbench.trace import Trace
from distbench.trace.intermediates import list_places

MicroSteps = Sequence[tuple[Array, list[Array]]]
"""What one device has in each micro-step, and what replicas have."""


def list_given(observed: Trace, reference: Trace, step: int) -> Iterator[MicroSteps]:
    """What tapes gave for a variable in each micro-step: one device, and replicas.

    Nothing of variables of which a step takes one gradient, or not as many everywhere.
    """
    for info in observed.variables:
        found: list[tuple[Array, list[Array]]] = []
        for place in list_places(observed, step, info.path):
            whole, parts = reference.get(place), observed.get_replicas(place)
            if not all(isinstance(value, np.ndarray) for value in (whole, *parts)):
                break
            found.append((cast(Array, whole), [cast(Array, part) for part in parts]))
        if len(found) > 1:
            yield found


def gradients_add_up(inside: Inside, step: int) -> bool:
    """Whether micro-steps have their parts of all gradients, whatever of each of them.

    A replica's micro-steps have other examples than those of one device, so that none
    of their losses is a part of one there.
    """
    given = list(list_given(inside.observed, inside.reference, step))
    return bool(given) and all(map(adds_up, given))


def adds_up(micro_steps: MicroSteps, factor: float = 1.0) -> bool:
    """Whether replicas' gradients of all micro-steps make up those of one device.

    Args:
        micro_steps: What one device has in each, and what replicas have.
        factor: How many times that.
    """
    pair = _add_up(micro_steps)
    if pair is None:
        return False
    seen, due = pair[0], factor * pair[1]
    parts = [part for _, own in micro_steps for part in own]
    return make_near(find_lost(micro_steps[0][0].dtype), due, parts)(seen, due)


def find_factor(given: Sequence[MicroSteps]) -> float | None:
    """How many times one device's gradients those of all replicas add up to.

    One number for all variables, as where a loss is N times its share, and averaged;
    None where there is none.

    Args:
        given: What tapes gave for each variable.
    """
    pairs = [pair for pair in map(_add_up, given) if pair is not None]
    fit = fit_common_ratio(pairs) if len(pairs) == len(given) else None
    if fit is None or not all(adds_up(each, fit.ratio) for each in given):
        return None
    return fit.ratio


def _add_up(micro_steps: MicroSteps) -> tuple[Array, Array] | None:
    """What replicas have in all, and what one device has; None of several shapes."""
    wholes = [whole for whole, _ in micro_steps]
    parts = [part for _, own in micro_steps for part in own]
    if len({value.shape for value in (*wholes, *parts)}) > 1:
        return None
    seen, due = (
        np.asarray(np.sum(v, axis=0, dtype=np.float64)) for v in (parts, wholes)
    )
    return seen, due
