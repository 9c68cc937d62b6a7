"""Whether all replicas draw the same random numbers."""

from __future__ import annotations

import math

import numpy as np

from distbench.codes import CODES
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.ratio import fit_ratio
from distbench.diagnose.names import name_replicas
from distbench.diagnose.readings.reading import repeats
from distbench.diagnose.seeds import find_seeds_of_batch
from distbench.evidence import Evidence
from distbench.trace import Trace
from distbench.trace.numbers import Array, densify, measure_norm, measure_size
from distbench.verdict import Finding

_FEW = 4
"""Of fewer numbers it would be chance that a multiple of others fits them."""


def find_shared_randomness(evidence: Evidence, noise: Noise) -> Finding | None:
    """Tell by what each replica's shard gives on one device, where no other draws.

    To a program that draws for each example it matters in which order they come. A
    replica with draws of its own then comes to other gradients than its shard alone.
    If none does, but for a factor, all have drawn what that one device draws. Who makes
    the seed of the examples draws by the own ones, and no other replica does.

    Only a warning where every draw is that of a layer of the framework.
    """
    found = evidence.reference.draws
    if found is None:
        return None
    own_seeds = find_seeds_of_batch(evidence)
    draws = {place: whose for place, whose in found.items() if place not in own_seeds}
    if not draws:
        return None
    if evidence.measure.shards_known or not noise.ordered or not repeats(evidence):
        return None
    bound = math.sqrt(find_roundoff(evidence.narrowest))
    sizes = evidence.reference.shards
    replicas = tuple(replica for replica, size in enumerate(sizes) if size)
    rests = [_measure_rest(evidence, replica) for replica in replicas]
    if len(rests) < 2 or not all(rest <= bound for rest in rests):
        return None
    own = sorted(place for place, whose in draws.items() if whose == "subject")
    place = (own or sorted(draws))[0]
    return Finding(
        code="randomness-shared",
        phase="loss",
        step=0,
        variable="",
        replicas=replicas,
        ratio=None,
        error=max(rests),
        bound=bound,
        explanation=(
            f"Step 0, loss, {name_replicas(replicas)}: all draw the "
            f"same random numbers, at {place} (randomness-shared; each has the "
            "gradients of its shard on one device, where no other replica draws). "
            f"{CODES['randomness-shared'].fix}"
        ),
        confidence=1 - max(rests),
        origin="subject" if own else "framework",
        warning=not own,
    )


def _measure_rest(evidence: Evidence, replica: int) -> float:
    """What of a replica's gradient no multiple of its shard's is, from 0 to 1."""
    shard = _join_gradients(evidence.reference, replica)
    seen = _join_gradients(evidence.observed, replica)
    if seen.size < _FEW or seen.shape != shard.shape:
        return math.inf
    fit = fit_ratio(seen, shard)
    if fit is None or measure_size(seen) == 0:
        return math.inf
    return measure_norm(seen - fit.ratio * shard) / measure_norm(seen)


def _join_gradients(trace: Trace, replica: int) -> Array:
    found = sorted(
        (key.variable, key.call, densify(value).ravel())
        for key, value in trace.select(step=0, phase="local_gradient", replica=replica)
    )
    return np.concatenate([array for *_, array in found]) if found else np.zeros(0)
