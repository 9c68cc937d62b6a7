"""Programs of three replicas that sum by hand, and what one device makes of sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from evidence_changes import change_evidence
from gradient_values import add_up, scale, to_array

from distbench.trace import Phase, TraceKey

ROLES: tuple[Phase, ...] = ("slot", "variable")


def add_narrow(gradients, order):
    """A sum in float16, of which each partial sum is rounded."""
    found = {}
    for path in gradients[0]:
        total = to_array(gradients[order[0]][path]).astype(np.float16)
        for replica in order[1:]:
            total = total + to_array(gradients[replica][path]).astype(np.float16)
        found[path] = total.astype(np.float32)
    return found


WAYS = {
    "mean": (
        lambda own: map_sum(add_up(own), 1 / 3),
        {"kept": [0, 1, 2], "factor": 1 / 3, "narrow": ""},
    ),
    "thrice": (
        lambda own: map_sum(add_up(own), 3.0),
        {"kept": [0, 1, 2], "factor": 3.0, "narrow": ""},
    ),
    "two": (
        lambda own: add_up([own[0], own[2]]),
        {"kept": [0, 2], "factor": 1.0, "narrow": ""},
    ),
    "none": (
        lambda own: map_sum(add_up(own), 0.0),
        {"kept": [0, 1, 2], "factor": 0.0, "narrow": ""},
    ),
    **{
        f"replica-{r}": (
            lambda own, r=r: add_up([own[r]]),
            {"kept": [r], "factor": 1.0, "narrow": ""},
        )
        for r in range(3)
    },
    "half": (
        lambda own: add_narrow(own, (1, 2, 0)),
        {"kept": [1, 2, 0], "factor": 1.0, "narrow": "float16"},
    ),
}


def map_sum(gradients, factor):
    return {path: scale(value, factor) for path, value in gradients.items()}


def hide_sums(evidence):
    """What is seen of a program that sums and updates by hand."""
    return change_evidence(
        evidence,
        observed=hide_sum(evidence.observed),
        reference=hide_sum(evidence.reference),
        twins=tuple(map(hide_sum, evidence.twins)),
        replays={},
        repeated=(),
    )


def hide_sum(trace):
    """A trace without them."""
    kept = {
        key: value
        for key, value in trace.values.items()
        if key.phase not in ("reduced_gradient", "applied_gradient")
    }
    return replace(trace, values=kept)


def feed(evidence, way, rule, change):
    """The state that one device, which changes gradients, comes to after a sum."""
    combine, notes = WAYS[way]
    return feed_combined(evidence, combine, rule, change, notes)


def feed_combined(evidence, combine, rule, change, notes=None):
    """The state that it comes to after what is made of the replicas' own gradients."""
    reference, values = evidence.reference, {}
    for step in range(reference.steps):
        own = [
            {
                key.variable: value
                for key, value in evidence.observed.select(
                    step=step, phase="local_gradient", replica=replica
                )
            }
            for replica in range(3)
        ]
        before = {
            v.path: evidence.get_before(step, v.role, v.path)
            for v in reference.variables
        }
        after = rule.update(before, change(combine(own)))
        for v in reference.variables:
            key = TraceKey(step=step, phase=v.role, variable=v.path, replica=0)
            if v.role in ROLES:
                values[key] = after[v.path]
    return replace(reference, values=values, notes=notes or {})
