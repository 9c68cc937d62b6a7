"""Whether a step that one device takes twice from the same state does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distbench.trace import COMPUTED, WHOLE
from distbench.worker.state.values import are_near, have_same_bits

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
    return all(
        have_same_bits(first.get(key), value) or are_near(first[key], value, None)
        for key, value in second.items()
    )
