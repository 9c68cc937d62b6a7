"""Shards once more in other graphs: how far apart may the same ops round?"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from distbench.evidence import Tier
from distbench.trace import COMPUTED, Trace
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.op_by_op import run_op_by_op
from distbench.worker.state.values import are_near, have_same_bits
from distbench.worker.stepping.steps import Step


def rerun_shards(reference: Reference, tier: Tier) -> tuple[Trace, ...]:
    """Run every shard of every step again, in the graph that it has on a cluster.

    The graph of a shard on one device has no update in it, and that of a replica has.
    What else is in a graph decides which ops TensorFlow and XLA join, so the shard runs
    once with the update, and once op by op, where nothing is joined at all.

    Args:
        reference: Of a workload of the bench; it ran all steps of the tier before.
        tier: The tier whose steps are run again.
    """
    whole_step = reference.session.make_step()
    return (
        _rerun(reference, tier, "with the update", whole_step, nullcontext()),
        _rerun(reference, tier, "op by op", reference.shard_step, run_op_by_op()),
    )


def has_near(observed: Trace, recorded: Trace) -> bool:
    """Whether a replica's value lies near that of its shard, and is not the same.

    Only then does it matter how far rounding alone may move it: what agrees in all
    bits is right, and what does not agree in half of the digits is not rounding.

    Args:
        observed: What the cluster did.
        recorded: The single-device run.
    """
    return any(
        not have_same_bits(expected, value)
        and are_near(expected, value, recorded.dtypes.get(key.variable))
        for phase in COMPUTED
        for key, value in observed.select(phase=phase)
        if (expected := recorded.get(key)) is not None
    )


def _rerun(
    reference: Reference,
    tier: Tier,
    name: str,
    step: Step,
    surroundings: AbstractContextManager[None],
) -> Trace:
    session = reference.session
    values = session.make_values()
    with surroundings:
        for number, batch, _ in reference.list_steps(tier):
            for replica, shard in enumerate(reference.sizes.cut(number, batch)):
                reference.starts.restore_shard(tier, number, replica)
                reference.run_shard(number, shard, step)
                session.collect_taps(number, values, replica=replica, phases=COMPUTED)
    return reference.make_trace(name, values)
