"""Shards that are given what replicas exchange, as the global batch has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distbench.evidence import Tier
from distbench.trace import COMPUTED, Trace
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError


def give_exchanged(
    reference: Reference, tier: Tier, regroup: Callable[[int], Mapping[int, Any]]
) -> Mapping[str, Trace]:
    """Loss and gradients of shards whose collectives give what the global batch's do.

    Target frequencies that follow from the classes of all examples, or weights that are
    divided by the largest of all: no shard has these, and only with them it is known
    whether shards make up the global batch.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.
        regroup: Shards of the same sizes with other examples of a step's batch.

    Returns:
        `exchanged`: each shard of every step; `exchanged-regrouped`: the first step's
        shards with other examples. Empty where no loss is made of what a collective
        gives, or where a shard does not come to the same collectives.
    """
    scenario, session = reference.scenario, reference.session
    if not reference.exchanged.is_early or scenario.injected:
        return {}
    whole_step, shard_step = session.make_step(), session.make_step()
    values, others = session.make_values(), session.make_values()
    try:
        with session.guard("step"), reference.exchanged.keep():
            whole_step.trace([reference.draw(0)])
        for step in range(scenario.steps):
            batch = reference.draw(step)
            session.restore_state(reference.starts[tier][step])
            reference.run_whole(step, batch, whole_step)
            shards = dict(enumerate(reference.sizes.cut(step, batch)))
            asked = [(shards, values)]
            if step == 0:
                asked.append((dict(regroup(step)), others))
            for cut, found in asked:
                for replica, shard in cut.items():
                    with session.guard("step"), reference.exchanged.give():
                        shard_step.trace([shard])
                        if not reference.exchanged.is_complete:
                            return {}
                    reference.restore_shard(tier, step, replica)
                    reference.run_shard(step, shard, shard_step)
                    session.collect_taps(step, found, replica=replica, phases=COMPUTED)
    except SubjectError:
        return {}
    return {
        name: reference.make_trace(name, "bounded", found)
        for name, found in (("exchanged", values), ("exchanged-regrouped", others))
    }
