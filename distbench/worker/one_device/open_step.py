"""A step that is traced once for all shards of a program, whatever their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from distbench.trace import COMPUTED, TraceKey, Value
from distbench.worker.process.failures import SubjectError
from distbench.worker.process.op_by_op import run_op_by_op
from distbench.worker.state.values import are_near, widen
from distbench.worker.stepping.program import count_batch

if TYPE_CHECKING:
    from distbench.worker.one_device.reference import Reference
    from distbench.worker.stepping.steps import Step


def find_open_step(reference: Reference, batch: Any) -> Step | None:
    """Make a step for shards of all sizes; None where it does not do, or does not pay.

    Of a large model a trace takes longer than all of its runs, and uneven shards have
    sizes of their own, as have their doubles. A program may do another thing where no
    number of examples is known when it is traced, so a shard has to give what it does
    op by op, where its number is known and nothing is traced. Random ops are other ones
    in another trace.

    Args:
        reference: Of a program; it has traced the global batch, so that all variables
            exist.
        batch: The global batch of the first step.
    """
    sizes = {times * size for size in reference.shards for times in (1, 2)}
    sizes |= {3 * max(reference.shards)}
    if len(sizes - {0, reference.examples}) < 2 or reference.draws:
        return None
    step = reference.session.make_step(any_size=True)
    if not step.any_size:
        return None
    shards = [s for s in reference.sizes.cut(0, batch) if count_batch(s)]
    try:
        own = _compute(reference, shards[-1], step, run_op_by_op())
        found = _compute(reference, shards[-1], step, nullcontext())
    except SubjectError:
        return None
    return step if _are_alike(own, found, reference.narrowest) else None


def _compute(
    reference: Reference,
    shard: Any,
    step: Step,
    surroundings: AbstractContextManager[None],
) -> Mapping[TraceKey, Value]:
    """Loss and local gradients of a shard in the first step."""
    session = reference.session
    values = session.make_values()
    session.restore_state(reference.initial)
    with surroundings:
        reference.run_shard(0, shard, step)
    session.collect_taps(0, values, replica=0, phases=COMPUTED)
    return values


def _are_alike(
    own: Mapping[TraceKey, Value], found: Mapping[TraceKey, Value], dtype: str
) -> bool:
    """Whether losses and gradients are the same, but for rounding.

    All gradients together, since one that is due to be 0 is made of rounding alone.
    """
    if own.keys() != found.keys():
        return False
    for phase in COMPUTED:
        pairs = [(widen(own[k]), widen(found[k])) for k in own if k.phase == phase]
        if any(a.shape != b.shape for a, b in pairs):
            return False
        left, right = (
            np.concatenate([side[place].ravel() for side in pairs] or [np.zeros(0)])
            for place in (0, 1)
        )
        if not are_near(left, right, dtype):
            return False
    return True
