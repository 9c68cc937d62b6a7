"""Whether a step takes anything of that in which examples differ from one device's."""

from __future__ import annotations

from typing import Any

from distbench.evidence import Tier
from distbench.trace import TraceKey, Value
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.values import are_near
from distbench.worker.subjects.batches import digest_batch


def leaves_out_own_data(reference: Reference, tier: Tier) -> bool:
    """Whether shards come to the same with what one device reads in the place of it.

    So they do where a batch holds the number of an example in its shard, or groups that
    are numbered there, of which only those that are equal are taken together.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.

    Returns:
        Whether all of these do in which something was exchanged, and there is one: of
        the first examples of a replica's batch, whatever one device has a counterpart.
    """
    found = False
    for step in range(reference.scenario.steps):
        other = reference.session.program.exchange_data(step)
        if other is None:
            continue
        if not reference.repeats:
            return False
        both = (reference.draw(step), other)
        pairs = zip(*(reference.sizes.cut(step, batch) for batch in both), strict=True)
        for replica, (own, changed) in enumerate(pairs):
            if digest_batch(own) == digest_batch(changed):
                continue
            if not _are_near(reference, tier, step, replica, own, changed):
                return False
            found = True
    return found


def _are_near(
    reference: Reference, tier: Tier, step: int, replica: int, own: Any, changed: Any
) -> bool:
    """Whether a replica's shard has the same loss and gradients with other examples."""
    runs: list[dict[TraceKey, Value]] = []
    for batch in (own, changed):
        values = reference.session.make_values()
        if not reference.observes_shard(tier, step, replica, batch, values):
            return False
        runs.append(dict(values.items()))
    first, second = runs
    dtype = reference.narrowest
    return bool(first) and all(
        key in second and are_near(first[key], second[key], dtype) for key in first
    )
