"""Whether it matters how many examples are together, and not which.

Uneven shards that are dealt out anew change both. A shard with some of its examples
changed for as many others changes only which.
"""

from __future__ import annotations

import numpy as np

from distbench.compare.nature.doubled import Margins, take_gradients
from distbench.evidence import Evidence
from distbench.trace.numbers import measure_size

_SWAPPED = ("swapped-first", "swapped-last", "swapped-both")


def is_led_by_count(evidence: Evidence, margins: Margins) -> bool:
    """Whether other examples change the largest shard the same whatever others it has.

    Then each of as many examples counts by itself, and the global batch is the measure,
    unless it draws as many numbers as it has examples.
    """
    repeats = evidence.reference.notes.get("repeats", True)
    if (
        not repeats
        or "once" in evidence.probes
        or evidence.probes.keys().isdisjoint(_SWAPPED)
    ):
        return False
    largest = int(np.argmax(evidence.reference.shards))
    own = take_gradients(evidence.reference, largest)
    first, last, both = (take_gradients(evidence.probes[n], largest) for n in _SWAPPED)
    if any(set(places) != set(margins) for places in (own, first, last, both)):
        return False
    seen = False
    for place, margin in margins.items():
        change = first[place] - own[place]
        gap = both[place] - last[place] - change
        told = np.isfinite(gap)
        # What is not finite tells nothing.
        if measure_size(gap[told]) > 4 * margin:
            return False
        seen = seen or measure_size(change[told]) > 4 * margin
    return seen
