"""Each term of a loss alone, of which all together are neither sums nor means.

A loss may have a term whose share of examples nobody can tell, as a norm of all outputs
or a mean that is divided by one more than there are, and beside it one that is plainly
a sum or a mean over the examples.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import numpy as np

from distbench.evidence import Tier
from distbench.trace import COMPUTED, Trace
from distbench.trace.numbers import densify
from distbench.worker.one_device.probes import repeat_examples
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.terms import SAME, ask_terms, run_term
from distbench.worker.stepping.steps import Step


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

    def ask(number: int) -> dict[str, Trace]:
        trace, by = run_term(reference, tier, number, COMPUTED)
        return {
            f"term-{number}": trace,
            f"term-{number}-doubled": _repeat(reference, tier, by, 2),
            f"term-{number}-tripled": _repeat(reference, tier, by, 3),
        }

    return dict(ChainMap(*ask_terms(reference.session, ask)))


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
            None if one is None else densify(one) for one in (value, *others)
        )
        if once is None or twice is None or thrice is None:
            return False
        rest = np.linalg.norm(once - 2 * twice + thrice)
        if rest > SAME * np.linalg.norm(thrice):
            return True
    return False


def _repeat(reference: Reference, tier: Tier, by: Step, times: int) -> Trace:
    replica = int(np.argmax(reference.shards))
    shards: list[Any] = list(reference.sizes.cut(0, reference.draw(0)))
    values = reference.session.make_values()
    batch = repeat_examples(shards[replica], times)
    reference.observes_shard(tier, 0, replica, batch, values, by=by)
    return reference.make_trace("repeated term", values)
