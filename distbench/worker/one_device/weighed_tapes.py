"""What one device comes to where its tapes give a multiple of what they give.

A step that takes several gradients of a variable, and updates by hand, shows neither a
replica's own gradient nor a sum, so that no sum can be fed to it. But whatever it adds
up, a multiple of the sum is what comes of the same multiple of all that tapes give.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace

from distbench.evidence import Tier
from distbench.trace import UPDATED, WHOLE, Phase, Trace
from distbench.trace.numbers import is_finite
from distbench.worker.one_device.decayed import LEAST
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.sums import Sum
from distbench.worker.process.failures import SubjectError
from distbench.worker.process.intercept import replace_attribute
from distbench.worker.state.values import are_near

_GRADIENTS: tuple[Phase, ...] = ("local_gradient", "reduced_gradient")


def weigh_tapes(
    feeder: Feeder, tier: Tier, reference: Trace, observed: Trace
) -> tuple[Trace, ...]:
    """The state after steps whose tapes give an N-th, N times as much, and nothing.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        reference: What one device recorded in it.
        observed: What the cluster recorded.

    Returns:
        In the form of sums that were fed. Empty where a gradient was seen, where tapes
        give none, and where the state is one device's.
    """
    is_seen = any(key.phase in _GRADIENTS for key in observed.values)
    if is_seen or observed.replicas < 2 or not observed.notes.get("micro_steps"):
        return ()
    if _are_alike(reference, observed):
        return ()
    every = Sum(kept=tuple(range(observed.replicas)))
    ways = [
        replace(every, factor=f) for f in (1 / observed.replicas, observed.replicas)
    ]
    found: list[Trace] = []
    with suppress(SubjectError):
        found = [_take_steps(feeder, tier, way, way.factor) for way in ways]
        none = replace(every, factor=0.0)
        silent = _take_steps(feeder, tier, none, 0.0)
        if not all(map(is_finite, silent.values.values())):
            # Whoever divides by their size has to have some.
            silent = _take_steps(feeder, tier, none, LEAST)
        found.append(silent)
    return tuple(found)


def _are_alike(reference: Trace, observed: Trace) -> bool:
    """Whether every replica has the state of one device, but for roundings."""
    return all(
        are_near(value, seen, reference.dtypes.get(key.variable))
        for key, value in reference.select(replica=WHOLE)
        if key.phase in UPDATED
        for seen in observed.get_replicas(key)
    )


def _take_steps(feeder: Feeder, tier: Tier, way: Sum, times: float) -> Trace:
    """The state after each step, as that of replica 0."""
    reference = feeder.reference
    session, values = reference.session, reference.session.make_values()
    weight = times * session.board.weight
    with feeder.trace_apart():
        by = session.make_step()
        for step, batch, before in reference.list_steps(tier):
            session.restore_state(before)
            # It is traced as it runs first.
            with replace_attribute(session.board, "weight", weight):
                reference.run_whole(step, batch, by)
            after = session.read_state()
            session.collect_state(step, after, values, replica=0)
    return reference.make_trace("multiples of gradients", values, **asdict(way))
