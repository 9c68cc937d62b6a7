"""A step that is traced once for all shards of a program, whatever their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

from distbench.trace import COMPUTED, TraceKey, Value
from distbench.worker.one_device.taken_twice import are_alike
from distbench.worker.process.failures import SubjectError
from distbench.worker.process.op_by_op import run_op_by_op
from distbench.worker.stepping.program import count_batch

if TYPE_CHECKING:
    from distbench.worker.one_device.reference import Reference
    from distbench.worker.stepping.steps import Step


def find_open_step(reference: Reference, batch: Any) -> Step | None:
    """Make a step for shards of all sizes; None where it does not do, or does not pay.

    Of a large model a trace takes longer than all of its runs, and uneven shards have
    sizes of their own, as have their doubles. A program may do another thing where no
    number of examples is known when it is traced, so each shard has to give what it
    does op by op, where its number is known and nothing is traced. Random ops are other
    ones in another trace.

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
    # Any of them may have the size from which on a program does another thing.
    differing = {count_batch(shard): shard for shard in shards}.values()
    try:
        # What was seen last is to be the trace: it comes after all that is op by op.
        own = [_compute(reference, s, step, run_op_by_op()) for s in differing]
        found = [_compute(reference, s, step, nullcontext()) for s in differing]
    except SubjectError:
        return None
    every = zip(chain(*own), chain(*found), strict=True)
    is_alike = all(are_alike(*both, reference.narrowest) for both in every)
    return step if is_alike else None


def _compute(
    reference: Reference,
    shard: Any,
    step: Step,
    surroundings: AbstractContextManager[None],
) -> list[Mapping[TraceKey, Value]]:
    """What a shard makes in the first step: loss, gradients, and what they do not lead.

    What optimizers have follows from gradients, and may be made of their rounding.

    Returns:
        What are compared with each other: loss and gradients, and each other value.
    """
    session = reference.session
    values, left = session.make_values(), session.make_values()
    session.restore_state(reference.initial)
    with surroundings:
        reference.run_shard(0, shard, step)
    session.collect_taps(0, values, replica=0, phases=COMPUTED)
    trained = {key.variable for key in values if key.phase == "local_gradient"}
    own = {v.path for v in session.variables if v.role == "variable"} - trained
    session.collect_state(0, session.read_state(own), left, replica=0)
    session.collect_results(0, session.read_state(), left)
    return [values, *({key: value} for key, value in left.items())]
