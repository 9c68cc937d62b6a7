"""Whether a step that one device takes twice from the same state does the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distbench.trace import COMPUTED, WHOLE, TraceKey, Value
from distbench.trace.numbers import densify, measure_finite, measure_gap
from distbench.worker.state.values import find_half, have_same_bits

if TYPE_CHECKING:
    from distbench.worker.one_device.reference import Reference


def repeats_step(reference: Reference, batch: Any) -> bool:
    """Whether the first step repeats its loss and gradients, but for rounding.

    TensorFlow's AddN begins with an addend whose buffer nobody else needs any more: of
    three or more losses that is now one, now another, which is no random number.

    Args:
        reference: What takes the step, in its initial state.
        batch: The global batch.
    """
    session = reference.session
    runs = []
    for _ in range(2):
        session.restore_state(reference.initial)
        reference.run_whole(0, batch)
        values = session.make_values()
        session.collect_taps(0, values, replica=WHOLE, phases=COMPUTED)
        runs.append(values)
    first, second = runs
    return are_alike(first, second, reference.narrowest)


def are_alike(
    own: Mapping[TraceKey, Value], found: Mapping[TraceKey, Value], dtype: str
) -> bool:
    """Whether values are the same, but for rounding.

    All of a phase together, since a gradient that is due to be 0 is made of rounding
    alone.
    """
    if own.keys() != found.keys():
        return False
    for phase in {key.phase for key in own}:
        keys = [key for key in own if key.phase == phase]
        gap = max((_measure(own[key], found[key]) for key in keys), default=0.0)
        if gap and gap > find_half(dtype) * max(
            measure_finite(densify(own[key])) for key in keys
        ):
            return False
    return True


def _measure(left: Value, right: Value) -> float:
    same = have_same_bits(left, right)
    return 0.0 if same else measure_gap(densify(left), densify(right))
