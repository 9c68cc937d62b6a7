"""What one device makes of a sum in which something counts the replicas once more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import tensorflow as tf

from distbench.evidence import Tier
from distbench.trace import UPDATED, Phase, Trace
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.held_against import change_gradients, differ
from distbench.worker.process.failures import SubjectError
from distbench.worker.process.intercept import replace_attribute
from distbench.worker.state.values import multiply

_PHASE: Phase = "reduced_gradient"
_COUNT = "num_replicas_in_sync"


def count_replicas_again(
    feeder: Feeder, tier: Tier, observed: Trace, followed: Trace
) -> tuple[Trace, ...]:
    """Feed the observed reduced gradients as if they were still to be divided.

    An N-th of them, and N times as much; a note says by which factor (`factor`). And
    the sums themselves to a step that is told of N replicas while it is traced, whose
    note says so (`told`). Left out is what leads to the same as the sums do.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        observed: What the cluster recorded.
        followed: What follows from its reduced gradients.
    """
    n = observed.replicas
    if n < 2:
        return ()
    found: list[Trace] = []
    for factor in (1 / n, float(n)):
        # A rule may refuse what is as large.
        with suppress(SubjectError):
            scale = partial(multiply, factor=factor)
            scaled = change_gradients(observed, scale, _PHASE)
            found.append(feeder.feed(tier, scaled, _PHASE, factor=factor))
    with suppress(SubjectError), feeder.trace_apart(), _told(n):
        found.append(feeder.feed(tier, observed, _PHASE, told=n))
    return tuple(trace for trace in found if differ(trace, followed, UPDATED))


@contextmanager
def _told(replicas: int) -> Iterator[None]:
    """Have every strategy say that it keeps so many replicas in sync."""
    owner = next(
        base for base in tf.distribute.Strategy.__mro__ if _COUNT in vars(base)
    )
    with replace_attribute(owner, _COUNT, property(lambda _: replicas)):
        yield
