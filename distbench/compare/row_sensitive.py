"""Rules that mind how the rows of a sparse gradient come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distbench.compare.measured_noise import measure_noise
from distbench.compare.values import densify
from distbench.evidence import Evidence
from distbench.trace import UPDATED, WHOLE


def find_row_sensitive(evidence: Evidence) -> tuple[str, ...]:
    """Variables whose rule gives something else if repeated rows are added up first.

    Replicas join their slices, and one device or a strategy may add up rows on the way:
    such a rule depends on who does.
    """
    distinct = evidence.probes.get("distinct")
    if distinct is None:
        return ()
    # In another order of the examples such a rule gives something else as well.
    ordered = tuple(t for t in evidence.twins if not t.notes.get("permuted"))
    noise = measure_noise(replace(evidence, twins=ordered))
    found: dict[str, None] = {}
    for key, value in distinct.select(step=0, replica=0):
        expected = evidence.reference.get(replace(key, replica=WHOLE))
        if expected is None or key.phase not in UPDATED:
            continue
        error = np.abs(densify(value) - densify(expected))
        if np.any(error > noise.find_margin(key, densify(expected)).bound):
            found[key.variable] = None
    return tuple(found)
