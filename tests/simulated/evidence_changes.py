"""`dataclasses.replace` of an evidence, for the fields of its groups as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
from gradient_values import Gradients
from training_simulator import HEAD, TABLE

from distbench.evidence import Evidence
from distbench.trace import Trace, TraceKey, Value, Values

_GROUPS = ("fed", "measure", "subject")


def change_evidence(evidence: Evidence, **changes: Any) -> Evidence:
    """The same evidence with some fields changed, whichever group they are of."""
    groups = {}
    for name in _GROUPS:
        group = getattr(evidence, name)
        known = {field.name for field in fields(group)}
        own = {key: changes.pop(key) for key in known & changes.keys()}
        groups[name] = replace(group, **own)
    return replace(evidence, **groups, **changes)


def change_apart(
    evidence: Evidence, change: Callable[[Gradients], Gradients]
) -> Evidence:
    """The same evidence with what one device makes of each replica's own gradients."""
    observed = evidence.observed
    handed: dict[TraceKey, Value] = {}
    for step, replica in product(range(observed.steps), range(observed.replicas)):
        own = observed.select(step=step, phase="local_gradient", replica=replica)
        keys = {key.variable: key for key, _ in own}
        made = change({path: observed.values[key] for path, key in keys.items()})
        for path, key in keys.items():
            handed[replace(key, phase="reduced_gradient")] = np.asarray(made[path])
    return change_evidence(evidence, apart=replace(observed, values=handed))


LATER = (TABLE, HEAD)
"""What a second update of the step trains, where updates are made in turn."""


def update_in_turn(evidence: Evidence) -> Evidence:
    """Have the variables of `LATER` trained by a second call of each step."""

    def move(trace: Trace) -> Trace:
        values = {
            replace(key, call=1)
            if key.variable in LATER and key.phase.endswith("gradient")
            else key: value
            for key, value in trace.values.items()
        }
        return replace(trace, values=Values(values))

    return evidence.change_traces(move)
