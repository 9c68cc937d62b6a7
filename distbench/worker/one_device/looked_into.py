"""The first step on one device once more, with a look at what its losses are made of.

Where a run passes by its own shards, that shows what is taken of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from distbench.evidence import Tier
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey, Value
from distbench.worker.one_device.fed import FedSteps
from distbench.worker.one_device.made_up import make_up
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.twins import Twins
from distbench.worker.process.failures import SubjectError


def look_inside(
    reference: Reference,
    tier: Tier,
    recorded: Trace,
    probes: Mapping[str, Trace],
    twins: Twins,
) -> Trace | None:
    """The global batch and each shard alone, with intermediate values of the losses.

    Args:
        reference: Ran all its steps before.
        tier: Which one.
        recorded: What that gave.
        probes: Further runs, as `Probes.record` has them.
        twins: Tell rounding of the same tier.

    Returns:
        Losses and what they are made of, under their own names, local gradients, and a
        note of where each value is made. None where losses and gradients of shards make
        up the global batch's, so that they take nothing of their shard alone; where one
        device has nothing to show of what they take, as of random numbers; and of a
        workload of the bench.
    """
    session = reference.session
    find_margin = partial(twins.find_margin, tier)
    if _is_known(reference) or _make_up(reference, recorded, probes, find_margin):
        return None
    batch, values = reference.draw(0), session.make_values()
    session.look_inside(of_steps=False)
    try:
        with session.board.set_aside():
            by = session.make_step(any_size=reference.shard_step.any_size)
            led = FedSteps(session)
            reference.starts.restore_whole(tier, 0)
            reference.run_whole(0, batch, by)
            session.collect_taps(0, values, replica=WHOLE, phases=COMPUTED)
            for replica, shard in enumerate(reference.sizes.cut(0, batch)):
                reference.starts.restore_shard(tier, 0, replica)
                reference.run_led(0, shard, by, led)
                session.collect_taps(0, values, replica=replica, phases=COMPUTED)
        notes = session.board.note_intermediates()
    except SubjectError:
        return None
    finally:
        session.look_away()
    return reference.make_trace("inside", values, **notes)


def _is_known(reference: Reference) -> bool:
    """Whether there is nothing to look for, or nothing that one device would show."""
    program, scenario = reference.session.program, reference.scenario
    return bool(
        program.shards_known
        or program.is_compiled
        or reference.draws
        or scenario.injected
        or not scenario.may_go_on
    )


def _make_up(
    reference: Reference,
    recorded: Trace,
    probes: Mapping[str, Trace],
    find_margin: Callable[[TraceKey, Value], float],
) -> bool:
    """Whether losses and gradients of shards make up the batch's in the first step.

    What a program returns need not be what it differentiates. What it takes of all
    replicas shards are given.
    """
    due = {
        key: value
        for key, value in recorded.select(step=0, replica=WHOLE)
        if key.phase in COMPUTED
    }
    alone = probes.get("exchanged", recorded)
    return make_up(alone, due, reference.shards, reference.narrowest, find_margin)
