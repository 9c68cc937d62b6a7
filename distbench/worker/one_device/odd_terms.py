"""Each term of a loss alone, of which all together are neither sums nor means.

A loss may have a term whose share of examples nobody can tell, as a norm of all outputs
or a mean that is divided by one more than there are, and beside it one that is plainly
a sum or a mean over the examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distbench.evidence import Tier
from distbench.trace import COMPUTED, WHOLE, Trace
from distbench.worker.one_device.probes import repeat_examples
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.terms import count_terms
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import widen
from distbench.worker.stepping.steps import Step

_SAME = 1e-3
"""Share of a gradient that rounding may leave, where it only decides what to ask."""


def split_odd(
    reference: Reference, tier: Tier, recorded: Trace, probes: Mapping[str, Trace]
) -> Mapping[str, Trace]:
    """Loss and gradients of each term, as if it were the loss.

    Args:
        reference: Ran all its steps before.
        tier: Which one.
        recorded: The single-device run.
        probes: Further ones, as `Probes.record` has them.

    Returns:
        `term-0`, …: the global batch and each shard of each step; `term-0-doubled` and
        `term-0-tripled`: the shard that is the largest in the first step, with every
        example so often. Empty where the whole loss tells by itself how it grows with
        its examples, or has no terms.
    """
    if "once" in probes or not _is_odd(recorded, probes):
        return {}
    board, found = reference.session.board, dict[str, Trace]()
    try:
        # What a term has no part in is dense, and traced steps may have it sparse.
        with board.set_aside():
            for number in range(count_terms(reference.session)):
                found.update(_run(reference, tier, number))
    except SubjectError:
        return {}  # a program may make use of what its whole loss gives
    finally:
        board.term = None
    return found


def _is_odd(recorded: Trace, probes: Mapping[str, Trace]) -> bool:
    """Whether a shard's gradients do not grow alike as its examples are repeated."""
    replica = int(np.argmax(recorded.shards))
    names = ("doubled", "tripled")
    repeated = [probes[name] for name in names if name in probes]
    if len(repeated) < len(names):
        return False
    found = recorded.select(step=0, phase="local_gradient", replica=replica)
    for key, value in found:
        others = [trace.get(key) for trace in repeated]
        once, twice, thrice = (
            None if one is None else widen(one) for one in (value, *others)
        )
        if once is None or twice is None or thrice is None:
            return False
        rest = np.linalg.norm(once - 2 * twice + thrice)
        if rest > _SAME * np.linalg.norm(thrice):
            return True
    return False


def _run(reference: Reference, tier: Tier, number: int) -> dict[str, Trace]:
    session = reference.session
    session.board.term = number
    by = session.make_step(any_size=reference.shard_step.any_size)
    values = session.make_values()
    for step, batch, before in reference.list_steps(tier):
        session.restore_state(before)
        reference.run_whole(step, batch, by)
        session.collect_taps(step, values, replica=WHOLE, phases=COMPUTED)
        for replica, shard in enumerate(reference.sizes.cut(step, batch)):
            reference.restore_shard(tier, step, replica)
            if reference.runs_shard(step, shard, by):
                session.collect_taps(step, values, replica=replica, phases=COMPUTED)
    return {
        f"term-{number}": reference.make_trace(f"term {number}", tier, values),
        **{
            f"term-{number}-{name}": _repeat(reference, tier, by, times)
            for name, times in (("doubled", 2), ("tripled", 3))
        },
    }


def _repeat(reference: Reference, tier: Tier, by: Step, times: int) -> Trace:
    replica = int(np.argmax(reference.shards))
    shards: list[Any] = list(reference.sizes.cut(0, reference.draw(0)))
    values = reference.session.make_values()
    reference.restore_shard(tier, 0, replica)
    if reference.runs_shard(0, repeat_examples(shards[replica], times), by):
        reference.session.collect_taps(0, values, replica=replica, phases=COMPUTED)
    return reference.make_trace("repeated term", tier, values)
