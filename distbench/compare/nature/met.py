"""Shards that meet on one device, as the reference of a step that goes on from sums.

See `distbench.worker.one_device.met`. What such a step leaves is known as well, though
the global batch as one device computes it leaves something else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distbench.compare.nature.grouping import Nature
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, INITIAL, WHOLE, Trace, TraceKey, Values
from distbench.trace.numbers import densify


def goes_on_from_gradients(evidence: Evidence) -> bool:
    """Whether losses hold features of other replicas by way of gradients alone."""
    return bool(evidence.observed.notes.get("exchange_by_gradients", False))


def take_met(evidence: Evidence, nature: Nature) -> Evidence | None:
    """With what shards come to that meet in the place of all that one device recorded.

    None where they were not run so.

    Args:
        evidence: With the global batch as its reference.
        nature: Whether gradients add up to a sum or to a mean over the examples.
    """
    met = evidence.probes.get(f"met-{nature.kind}")
    if met is None:
        return None
    reference = evidence.reference
    start = Values(reference.values).keep(lambda key: key.step == INITIAL)
    values = Values({**start.held, **_add_up(met, nature).held})
    probes = dict(evidence.probes)
    for way in ("divided", "multiplied"):
        other = probes[f"met-{nature.kind}-{way}"]
        probes[f"exchanged-{way}"] = replace(other, values=_add_up(other, nature))
    return replace(
        evidence,
        reference=replace(reference, values=values),
        starts=reference,
        probes=probes,
        fed=replace(evidence.fed, resumed=None),
    )


def _add_up(met: Trace, nature: Nature) -> Values[TraceKey]:
    """With what all shards have together of what each computes."""
    values = Values(met.values)
    for key, _ in met.select(replica=0):
        if key.phase in COMPUTED:
            weights = nature.weigh(met.get_shards(key.step), key.phase)
            parts = zip(weights, map(densify, met.get_replicas(key)), strict=True)
            values[key.at(WHOLE)] = np.asarray(sum(w * part for w, part in parts))
    return values
