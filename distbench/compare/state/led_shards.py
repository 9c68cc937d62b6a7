"""What shards alone leave in state that the examples lead, and what copies hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.measure import Margin, measure_error
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import share_by_size
from distbench.evidence import Evidence
from distbench.trace import WHOLE, TraceKey, VariableInfo
from distbench.trace.numbers import Array, densify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Led:
    """One variable after a step.

    Attributes:
        key: Step and variable; replica `WHOLE`.
        before: On one device, before the step.
        shards: On one device, after the step of each shard alone.
        doubles: The same of shards with every example twice; empty if it is not known.
        copies: On the cluster, by replica.
        margin: How far equal values may lie apart.
        is_taken: Whether losses take what all replicas make of it, and shards do not
            make up the global batch's: then that is all it may be.
    """

    key: TraceKey
    before: Array
    shards: tuple[Array, ...]
    doubles: tuple[Array, ...] = ()
    copies: tuple[tuple[int, Array], ...]
    margin: Margin
    is_taken: bool = False

    def are_near(self, value: Array) -> bool:
        """Whether all copies hold a value."""
        return all(self.is_near(copy, value) for _, copy in self.copies)

    def is_near(self, copy: Array, value: Array) -> bool:
        """Whether one value is another, within the margin."""
        return not measure_error(copy, value, self.margin).wrong

    def add_up_to(self, value: Array) -> bool:
        """Whether what all copies gained leads to a value, as with what is counted."""
        gained = [copy - self.before for _, copy in self.copies]
        return self.is_near(np.asarray(self.before + np.sum(gained, axis=0)), value)

    def list_counts(self) -> list[Array]:
        """What each shard's examples add; the rest of its change is a mean of them."""
        pairs = zip(self.doubles, self.shards, strict=True)
        return [double - shard for double, shard in pairs]

    def join(self, counts: Sequence[Array], weights: Sequence[float]) -> Array:
        """What the shards' counts, added up, and the rest, by weights, make of it."""
        triples = zip(weights, self.shards, counts, strict=True)
        means = [w * (shard - self.before - count) for w, shard, count in triples]
        return np.asarray(self.before + np.sum([*counts, *means], axis=0))

    def find_leaders(self) -> dict[int, int]:
        """By replica, whose shard alone gives what its copy holds.

        Empty unless that is one shard for each copy.
        """
        found: dict[int, int] = {}
        for replica, copy in self.copies:
            near = self.list_near(copy)
            if len(near) != 1:
                return {}
            found[replica] = near[0]
        return found

    def list_near(self, copy: Array) -> list[int]:
        """The replicas of which the shard alone gives what a copy holds."""
        return [r for r, s in enumerate(self.shards) if self.is_near(copy, s)]


def find_leader(evidence: Evidence, pair: Pair) -> int | None:
    """The one replica whose examples alone give what was observed, if there is one."""
    led = collect_led(evidence, pair.key.at(WHOLE), pair.margin)
    return None if led is None else led.find_leaders().get(pair.key.replica)


def list_leaders(evidence: Evidence, pair: Pair) -> list[int] | None:
    """All replicas of which the examples alone give what was observed.

    None where it is not known what they give.
    """
    led = collect_led(evidence, pair.key.at(WHOLE), pair.margin)
    return None if led is None else led.list_near(pair.observed)


def find_averaged(evidence: Evidence, pair: Pair) -> Array | None:
    """What replicas come to that average what they have to add up.

    None of what is no count of examples, or a sum over them.
    """
    led = collect_led(evidence, pair.key.at(WHOLE), pair.margin)
    if led is None or not led.doubles:
        return None
    counts = led.list_counts()
    due = led.join(counts, weigh_by_size(evidence, led))
    is_count = any(not led.is_near(led.before + n, led.before) for n in counts)
    if not is_count or not led.is_near(pair.expected, due):
        return None
    return np.asarray(np.mean(led.shards, axis=0))


def split_counted(evidence: Evidence, pair: Pair) -> tuple[Array, Array] | None:
    """What a step makes of the old value, whatever its examples, and what these add.

    None unless both together are due: the first once, as it is alike on all shards, and
    the second added up over them.
    """
    found = list_counted(evidence, pair)
    return None if found is None else (found[0], np.asarray(np.sum(found[1], axis=0)))


def list_counted(evidence: Evidence, pair: Pair) -> tuple[Array, list[Array]] | None:
    """The same with what the examples of each replica add; see `split_counted`."""
    led = collect_led(evidence, pair.key.at(WHOLE), pair.margin)
    if led is None or not led.doubles:
        return None
    counts = led.list_counts()
    kept = [shard - n for shard, n in zip(led.shards, counts, strict=True)]
    total = np.asarray(np.sum(counts, axis=0))
    is_alike = all(led.is_near(one, kept[0]) for one in kept)
    if not is_alike or not led.is_near(pair.expected, np.asarray(kept[0] + total)):
        return None
    return kept[0], counts


def find_mean(evidence: Evidence, pair: Pair) -> Array | None:
    """The mean of what the shards alone leave."""
    led = collect_led(evidence, pair.key.at(WHOLE), pair.margin)
    return None if led is None else np.asarray(np.mean(led.shards, axis=0))


def is_doubled(evidence: Evidence, pair: Pair) -> bool:
    """Whether every shard leaves twice as much where it has each example twice."""
    led = collect_led(evidence, pair.key.at(WHOLE), pair.margin)
    if led is None or not led.doubles:
        return False
    pairs = zip(led.doubles, led.shards, strict=True)
    return all(led.is_near(double, 2 * shard) for double, shard in pairs)


def collect_led(evidence: Evidence, key: TraceKey, margin: Margin) -> Led | None:
    """What is known of a variable after a step; None unless it is all of this."""
    reference, observed = evidence.reference, evidence.observed
    before = evidence.get_before(key.step, key.phase, key.variable)
    alone = tuple(map(densify, reference.get_replicas(key)))
    copies = [
        (place.replica, densify(value))
        for place, value in observed.select(
            step=key.step, phase=key.phase, variable=key.variable
        )
    ]
    if any(v.path == key.variable and is_read_first(v) for v in observed.variables):
        copies = copies[:1]
    if before is None or not alone or not copies:
        return None
    arrays = [densify(before), *alone, *(copy for _, copy in copies)]
    if len({array.shape for array in arrays}) > 1:
        return None
    if not all(np.all(np.isfinite(array)) for array in (*arrays, margin.bound)):
        return None
    return Led(
        key=key,
        before=densify(before),
        shards=alone,
        doubles=_find_doubles(evidence, key, len(alone)),
        copies=tuple(copies),
        margin=margin,
    )


def _find_doubles(evidence: Evidence, key: TraceKey, count: int) -> tuple[Array, ...]:
    probe = evidence.probes.get("doubled")
    found = () if probe is None else probe.get_replicas(key)
    return tuple(map(densify, found)) if len(found) == count else ()


def is_read_first(info: VariableInfo) -> bool:
    """Whether of the replicas' own state the first copy is all that ever counts."""
    return info.is_carried and info.takes_first


def weigh_by_size(evidence: Evidence, led: Led) -> list[float]:
    """The share of the batch's examples that each shard has."""
    sizes = evidence.reference.get_shards(led.key.step)
    return list(share_by_size(sizes))
