"""Shards that are given what replicas exchange, as the global batch has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distbench.evidence import Tier
from distbench.trace import COMPUTED, WHOLE, Trace
from distbench.worker.one_device.fed import FedSteps
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError


def give_exchanged(
    reference: Reference,
    tier: Tier,
    batches: Mapping[str, Sequence[Mapping[int, Any]]],
) -> Mapping[str, Trace]:
    """Loss and gradients of shards whose collectives give what the global batch's do.

    Target frequencies that follow from the classes of all examples, or weights that are
    divided by the largest of all: no shard has these, and only with them it is known
    whether shards make up the global batch.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.
        batches: What each replica is given, by name and step.

    Returns:
        A trace of each name, without steps whose batches take another trace than the
        first one. Without names of which one raises. Empty where no loss is made of
        what a collective gives, or where a shard does not come to the same collectives.
    """
    session, exchanged = reference.session, reference.exchanged
    handed = reference.handed
    if not exchanged.leads_losses or reference.scenario.injected:
        return {}
    found = {name: session.make_values() for name in batches}
    try:
        whole_step = reference.keeping
        graph = whole_step.trace([reference.draw(0)])
        led_steps = FedSteps(
            session,
            any_size=reference.shard_step.any_size and exchanged.fits_any_size,
        )
        for step in range(max(map(len, batches.values()))):
            batch = reference.draw(step)
            with session.guard("step"):
                if whole_step.trace([batch]) is not graph:
                    continue
            reference.starts.restore_whole(tier, step)
            reference.run_whole(step, batch, whole_step)
            for name, steps in batches.items():
                shards = steps[step] if step < len(steps) and name in found else {}
                for replica, shard in shards.items():
                    reference.starts.restore_shard(tier, step, replica)
                    try:
                        with (
                            exchanged.give(),
                            led_steps.feed(handed[step], shard) as led,
                        ):
                            reference.run_shard(step, shard, led)
                    except SubjectError:
                        # A double may have more rows than are gathered of all.
                        found.pop(name)
                        break
                    if not exchanged.is_complete:
                        return {}
                    session.collect_taps(
                        step, found[name], replica=replica, phases=COMPUTED
                    )
    except SubjectError:
        return {}
    return {name: reference.make_trace(name, values) for name, values in found.items()}


def scale_exchanged(reference: Reference, tier: Tier) -> Mapping[str, Trace]:
    """Loss and gradients of the global batch, if what is exchanged were scaled by N.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.

    Returns:
        `exchanged-divided` and `exchanged-multiplied`: each step of the global batch,
        where what collectives give before the gradient is 1/N, or N times, what it is.
        Empty where no loss is made of what a collective gives.
    """
    session, exchanged = reference.session, reference.exchanged
    scenario, n = reference.scenario, reference.replicas
    if not exchanged.leads_losses or scenario.injected:
        return {}
    found = {}
    by = session.make_step()
    try:
        with session.guard("step"), exchanged.scale():
            by.trace([reference.draw(0)])
    except SubjectError:
        return {}
    for name, factor in (("divided", 1 / n), ("multiplied", float(n))):
        values = session.make_values()
        exchanged.set_factor(factor)
        try:
            for step, batch, start in reference.list_steps(tier):
                session.restore_state(start)
                reference.run_whole(step, batch, by)
                session.collect_taps(step, values, replica=WHOLE, phases=COMPUTED)
        except SubjectError:
            continue
        found[f"exchanged-{name}"] = reference.make_trace(name, values)
    return found
