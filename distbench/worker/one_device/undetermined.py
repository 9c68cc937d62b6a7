"""State of which values from outside do not tell what it has to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any

from distbench.evidence import Tier
from distbench.trace import UPDATED, WHOLE, Phase, Trace, Values
from distbench.worker.one_device.feeder import Feeder, repeat_first
from distbench.worker.one_device.held_against import (
    measure_distances,
    take_whole,
)
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import have_same_bits

Change = Callable[[Any], Any]
"""Makes another batch of one."""
Feed = Callable[[Change | None], Trace]
"""Gives one device its own gradients, and a batch that may be changed."""


def find_undetermined(
    feeder: Feeder,
    tier: Tier,
    reference: Trace,
    observed: Trace,
    replay: Trace,
    phase: Phase = "reduced_gradient",
) -> tuple[str, ...]:
    """State of which a replay does not tell what it has to be.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        reference: What one device recorded in it.
        observed: What the cluster recorded.
        replay: What follows on one device from its gradients.
        phase: Where these were fed.
    """
    own = take_whole(reference, phase)

    def feed(change: Change | None) -> Trace:
        return feeder.feed(tier, own, phase, change=change)

    led = _find_data_driven(feed, {key.variable for key in own.values})
    unrepeated = _find_unrepeated(feed, reference, observed, replay)
    return tuple(dict.fromkeys((*sorted(led), *unrepeated)))


def _find_unrepeated(
    feed: Feed, reference: Trace, observed: Trace, replay: Trace
) -> Iterator[str]:
    """State that a replay misses on one device by as much as on the cluster.

    The reference's own gradients do not lead to the reference's state where a rule
    keeps a number of Python's, which moves when it is traced, or draws at random.
    """
    try:
        again = feed(None)
    except SubjectError:
        return
    missed = measure_distances(again, reference, own_replica=WHOLE)
    strayed = measure_distances(replay, observed)
    # The cluster's gradients are others by a rounding, so distances differ. What
    # makes one variable miss, a random number say, makes the others miss as well.
    if any(2 * missed[name] >= strayed.get(name, 0.0) for name in missed):
        yield from missed


def _find_data_driven(feed: Feed, trained: Set[str]) -> set[str]:
    """State that the same gradients lead elsewhere if the examples are others.

    An optimizer sees no examples, but the gradients before they are reduced: a rule may
    divide by a norm that it made of them, all_reduce included. What does not even
    repeat itself depends on chance, and not on the examples. Of all steps, since what
    starts at 0 may come back to it exactly in the first.
    """
    try:
        first, again, other = map(feed, (None, None, repeat_first))
    except SubjectError:
        return set()  # a program may take no other batch than its own
    state = Values(first.values).keep(lambda key: key.phase in UPDATED)
    led = {
        key.variable
        for key, value in state.items()
        if have_same_bits(again.get(key), value)
        and not have_same_bits(other.get(key), value)
    }
    # A step that moves one of what it trains by more than its gradient moves the others
    # as well: these came back to the same bits by chance.
    return led | trained if led & trained else led
