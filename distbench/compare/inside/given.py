"""What tapes gave in each micro-step, and whether replicas have their parts of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from distbench.compare.inside.nearness import Array, find_lost, make_near
from distbench.evidence import Inside
from distbench.trace import Trace
from distbench.trace.intermediates import list_places


def list_given(
    observed: Trace, reference: Trace, step: int
) -> Iterator[Sequence[tuple[Array, list[Array]]]]:
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


def adds_up(micro_steps: Sequence[tuple[Array, list[Array]]]) -> bool:
    """Whether replicas' gradients of all micro-steps make up those of one device."""
    wholes = [whole for whole, _ in micro_steps]
    parts = [part for _, own in micro_steps for part in own]
    if len({value.shape for value in (*wholes, *parts)}) > 1:
        return False
    due, seen = (
        np.asarray(np.sum(v, axis=0, dtype=np.float64)) for v in (wholes, parts)
    )
    return make_near(find_lost(wholes[0].dtype), due, parts)(seen, due)
