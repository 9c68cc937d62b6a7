"""Gradients that one device has, and that no replica of the cluster has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distbench.evidence import Evidence
from distbench.trace import GRADIENTS, WHOLE, Values
from distbench.trace.numbers import densify, measure_finite


def add_absent(evidence: Evidence) -> Evidence:
    """Add a gradient of 0 for each: an optimizer leaves such a variable as it is.

    A tape gives no gradient where nothing leads to a variable: behind stop_gradient, or
    behind an op without one. Zeros are added only in steps in which every replica has
    shown gradients of other variables, so that it is known that the taps were there,
    and of variables of which no phase has shown any. A variable that the cluster knows
    by another name, or not at all, is left alone.
    """
    observed, reference = evidence.observed, evidence.reference
    seen: dict[int, set[str]] = {}
    whole: set[tuple[int, int]] = set()
    for key, _ in observed.select():
        if key.phase in GRADIENTS:
            seen.setdefault(key.step, set()).add(key.variable)
        if key.phase == "local_gradient":
            whole.add((key.step, key.replica))
    everyone = range(observed.replicas)
    known = {info.path for info in observed.variables}
    values = Values(observed.values)
    for key, value in reference.select(phase="local_gradient", replica=WHOLE):
        is_seen = all((key.step, replica) in whole for replica in everyone)
        if not is_seen or key.variable not in known - seen.get(key.step, set()):
            continue
        due = densify(value)
        if measure_finite(due) > 0:
            for replica in everyone:
                values[key.at(replica)] = np.zeros_like(due)
    if len(values) == len(observed.values):
        return evidence
    return replace(evidence, observed=replace(observed, values=values))
