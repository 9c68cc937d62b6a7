"""Gradients of a cluster in the form in which one device itself has them.

What replicas join holds a row once for each of them, or all rows there are. It may add
up to what one device has, and lead a rule elsewhere that minds how rows come.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from distbench.evidence import Tier
from distbench.trace import SUMMED, WHOLE, Phase, Trace, TraceKey, Value
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.form import move_sums, take_form
from distbench.worker.process.failures import SubjectError


def feed_formed(
    feeder: Feeder,
    tier: Tier,
    reference: Trace,
    observed: Trace,
    fed: Mapping[Phase, Trace],
) -> tuple[Trace, ...]:
    """The update of observed gradients in the reference's form.

    Of the steps and replicas that have some in another form, and fed at the first
    `phase`, as a note has it, where they have. Empty where all forms are alike.

    Where twins tell nothing of the noise, as they draw, the update is fed once more
    with sums that are moved by as much as they may round.

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
            given = [formed]
            if not reference.notes.get("repeats", True):
                given.append(_move_all(formed, observed))
            with suppress(SubjectError):
                return tuple(
                    feeder.feed(
                        tier, replace(observed, values=values), phase, phase=phase
                    )
                    for values in given
                )
            return ()
    return ()


def _move_all(
    formed: Mapping[TraceKey, Value], observed: Trace
) -> dict[TraceKey, Value]:
    rng = np.random.default_rng(0)
    return {
        key: value if seen is value or seen is None else move_sums(value, seen, rng)
        for key, value in formed.items()
        for seen in [observed.get(key)]
    }


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
