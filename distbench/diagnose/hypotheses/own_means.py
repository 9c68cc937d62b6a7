"""What means are taken over, told by what the shards count on one device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distbench.compare.arrays.ratio import SAME, share_by_size
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import name_weights
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array, densify


def name_mean(context: Context, shares: Mapping[int, Array]) -> tuple[str, str]:
    """What each replica takes a mean over, and how the shards should count.

    Args:
        context: The wrong values.
        shares: By step, what each shard counts on one device.
    """
    first = shares[min(shares)]
    if all(_are_sizes(context, step, each) for step, each in shares.items()):
        due = f"of all examples the shards hold {name_weights(first)}"
        return "a mean over its own shard", due
    if all(_are_of_roots(context, step, each) for step, each in shares.items()):
        due = "one device takes the root of the mean over all examples"
        return "the root of a mean over its own shard", due
    mean = "a mean over its own weights (tokens, unmasked elements, sample weights)"
    return mean, _tell_shares(first)


def find_parts(context: Context, step: int) -> Array:
    """The part n_r/G that each shard has of the examples of a step.

    Args:
        context: The wrong values.
        step: The step.
    """
    sizes = context.evidence.reference.get_shards(step)
    return np.asarray(share_by_size(sizes))


def _are_sizes(context: Context, step: int, shares: Array) -> bool:
    """Whether shards count as many times as they have examples, n_r/G."""
    return bool(np.allclose(shares, find_parts(context, step), rtol=0.0, atol=SAME))


def _tell_shares(shares: Array) -> str:
    due = name_weights(shares)
    if abs(np.sum(shares) - 1) <= SAME:
        return f"of the weights of all examples the shards hold {due}"
    return f"on one device they count {due}"


def _are_of_roots(context: Context, step: int, shares: Array) -> bool:
    """Whether shards count as under a root: of L² = Σ n_r/G l_r², n_r/G l_r/L."""
    reference = context.evidence.reference
    key = TraceKey(step=step, phase="loss", variable="", replica=WHOLE)
    whole, alone = reference.get(key), reference.get_replicas(key)
    sizes = np.asarray(reference.get_shards(step), np.float64)
    if whole is None or not np.any(densify(whole)):
        return False
    losses = np.asarray([float(densify(value)) for value in alone])
    if losses.shape != sizes.shape:
        return False
    roots = sizes / max(1.0, sizes.sum()) * losses / float(densify(whole))
    return bool(np.allclose(shares, roots, rtol=0.0, atol=SAME / 10))
