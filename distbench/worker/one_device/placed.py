"""Examples that meet others in what is exchanged, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from distbench.evidence import Tier
from distbench.examples import Counted
from distbench.trace import WHOLE, Trace, Values
from distbench.worker.one_device.counted import can_be_asked, list_by_place
from distbench.worker.one_device.rearranged import Rearranged
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.twins import Twins
from distbench.worker.process.failures import SubjectError


def find_placed(
    reference: Reference,
    tier: Tier,
    recorded: Trace,
    probes: Mapping[str, Trace],
    twins: Twins,
) -> Counted | None:
    """All examples, where each adds what follows from itself, its place and all data.

    Items that are gathered from all replicas are negatives of each query; which of them
    is its answer follows from its place. A shard alone, given what is gathered, counts
    places from its own first example. So it is no part of the global batch, but nothing
    that can be meant is taken of it either: no example meets another one of the shard.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.
        recorded: What that gave.
        probes: Further runs, as `Probes.record` has them.
        twins: Moves states by rounding.

    Returns:
        Of the first step. None where shards that are given what is exchanged make up
        its batch, where one of its gradients is made of more than that, and where
        nothing is exchanged.
    """
    given = probes.get("exchanged")
    session, batch = reference.session, reference.draw(0)
    if given is None or session.draws.are_given or not can_be_asked(reference):
        return None
    by = session.make_step()
    alone = _give(recorded, given)
    step = Rearranged(reference, tier, alone, 0, twins, by)
    names = [
        variable.path
        for variable in recorded.variables
        if not step.is_made_up(step.get_due(variable.path))
    ]
    if not names:
        return None
    try:
        reference.starts.restore_whole(tier, 0)
        reference.run_whole(0, batch, reference.keeping)
        with session.guard("step"), reference.exchanged.give():
            by.trace([batch])
    except SubjectError:
        return None
    if list_by_place(step, names) != names:
        return None
    numbers = {r: tuple(map(int, order)) for r, order in step.orders.items()}
    whole = numbers.pop(WHOLE)
    return Counted(
        step=0, whole=whole, shards=tuple(numbers.values()), by_place=True, given=True
    )


def _give(recorded: Trace, given: Trace) -> Trace:
    """With shards that are given what the global batch exchanges."""
    whole = Values(recorded.values).keep(lambda key: key.replica == WHOLE)
    values = Values({**whole.held, **Values(given.values).held})
    return replace(recorded, values=values)
