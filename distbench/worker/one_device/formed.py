"""Gradients of a cluster in the form in which one device itself has them.

What replicas join holds a row once for each of them, or all rows there are. It may add
up to what one device has, and lead a rule elsewhere that minds how rows come.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from distbench.evidence import Tier
from distbench.trace import SUMMED, WHOLE, Phase, Trace, TraceKey, Value
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.form import take_form


def feed_formed(
    feeder: Feeder,
    tier: Tier,
    reference: Trace,
    observed: Trace,
    fed: Mapping[Phase, Trace],
) -> Trace | None:
    """The update of observed gradients in the reference's form.

    Of the steps and replicas that have some in another form, and fed at the first
    `phase`, as a note has it, where they have. None where all forms are alike.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        reference: What one device recorded in it.
        observed: What the cluster recorded.
        fed: The phases at which its gradients were fed as they came.
    """
    for phase in SUMMED:
        if phase not in fed:
            continue
        formed = _form_all(reference, observed, phase)
        if formed:
            with suppress(SubjectError):
                given = replace(observed, values=formed)
                [trace] = feeder.feed(tier, given, phase)
                return replace(trace, notes={**trace.notes, "phase": phase})
            return None
    return None


def _form_all(reference: Trace, observed: Trace, phase: Phase) -> dict[TraceKey, Value]:
    """All gradients of each step and replica that have one in another form."""
    formed = {
        key: value
        for key, seen in observed.select(phase=phase)
        if (own := reference.get(key.at(WHOLE))) is not None
        and (value := take_form(own, seen, _list_handed(observed, key))) is not None
    }
    places = {(key.step, key.replica) for key in formed}
    others = {
        key: value
        for step, replica in places
        for key, value in observed.select(step=step, phase=phase, replica=replica)
    }
    return {**others, **formed}


def _list_handed(observed: Trace, key: TraceKey) -> tuple[Value, ...]:
    """What all replicas' tapes gave of a gradient."""
    return observed.get_replicas(replace(key, phase="local_gradient"))
