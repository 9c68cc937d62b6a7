"""Shards that start from what all examples have made of state of the replicas' own.

A replica goes on from its own copy, and so does its shard (`Starts.restore_shard`).
Where a loss reads that copy, later steps depend on who got which example before.
Whether they also depend on who has which one now, shards tell that start from one
state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from distbench.evidence import Tier
from distbench.trace import COMPUTED, Recorded, Trace
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.values import are_near

JOINT = "joint"
"""The probe of the shards as they are; those of other batches have it before theirs."""


def start_jointly(
    reference: Reference,
    tier: Tier,
    recorded: Trace,
    batches: Mapping[str, Sequence[Mapping[int, Any]]],
) -> Mapping[str, Trace]:
    """Steps of shards from the state of the global batch, own copies included.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.
        recorded: What that gave.
        batches: What each replica is given, by probe and step. `joint` has the shards
            themselves; in the first step all start alike anyway.

    Returns:
        Loss, local gradients and own state of each shard, by probe; `joint` notes as
        `read` the state without which its losses or gradients are those of a shard that
        goes on from its own. Empty where no loss or gradient follows own copies, where
        random numbers move with them, and where a program takes no shard.
    """
    kept = _list_kept(reference)
    is_open = reference.draws or reference.scenario.injected
    if not kept or tier == "exact" or is_open:
        return {}
    found = {JOINT: _run(reference, tier, batches[JOINT], kept)}
    if not _is_other(found[JOINT], recorded):
        return {}
    read = [
        path
        for path in kept
        if len(kept) == 1
        or _is_other(_run(reference, tier, batches[JOINT], {path}), recorded)
    ]
    for name, steps in batches.items():
        if name != JOINT:
            found[name] = _run(reference, tier, steps, kept)
    return {
        name: reference.make_trace(name, values, read=read)
        for name, values in found.items()
    }


def _list_kept(reference: Reference) -> list[str]:
    """State of one replica from which later steps go on.

    What trains as the mean of copies has one value.
    """
    made = reference.list_made_own()
    return [
        v.path
        for v in reference.session.variables
        if v.path in made and not v.is_mean_of_copies
    ]


def _run(
    reference: Reference,
    tier: Tier,
    steps: Sequence[Mapping[int, Any]],
    joint: Collection[str],
) -> Recorded:
    """What each shard gives after the first step; see `Starts.restore_shard`."""
    session = reference.session
    values = session.make_values()
    for step, shards in enumerate(steps):
        for replica, shard in shards.items() if step else ():
            if reference.observes_shard(
                tier, step, replica, shard, values, joint=joint
            ):
                left = session.read_state(joint)
                session.collect_state(step, left, values, replica=replica)
    return values


def _is_other(values: Recorded, recorded: Trace) -> bool:
    """Whether some loss or gradient is plainly another one than that of the shard."""
    return any(
        not are_near(due, value, recorded.dtypes.get(key.variable))
        for key, value in values.items()
        if key.phase in COMPUTED and (due := recorded.get(key)) is not None
    )
