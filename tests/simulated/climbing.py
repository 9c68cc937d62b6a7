"""Programs that climb up the slope of all replicas first, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from grouped_losses import SHARDS, Batch, Compute, Shards
from grouped_training import RATE, Simulator, put

from distbench.evidence import Evidence
from distbench.split import shard_slices
from distbench.trace import WHOLE, TraceKey, Value

Way = Callable[[list[Batch], list[float]], Batch]
"""The way up, given the shards' slopes and what each weighs."""
FACTORS = {"": 1.0, "-divided": 1 / len(SHARDS), "-multiplied": float(len(SHARDS))}


def add_up(slopes: list[Batch], weights: list[float]) -> Batch:
    """What one device climbs along."""
    return np.asarray(sum(w * s for w, s in zip(weights, slopes, strict=True)))


def average(slopes: list[Batch], weights: list[float]) -> Batch:
    """The mean of what the replicas have, in place of its sum."""
    return add_up(slopes, weights) / np.float32(len(slopes))


class Climber(Simulator):
    """Takes the gradient from above, at θ + 0.3 times the slope.

    Args:
        compute: What one device computes of a batch.
        weigh: Factor of replica r's loss and gradient on the cluster, given the shards.
        way: How the cluster finds its way up.
        reduce: See `Simulator`.
    """

    def __init__(
        self,
        compute: Compute,
        weigh: Callable[[int, Shards], float] = lambda *_: 1.0,
        way: Way = add_up,
        reduce: Callable[[list[Batch], int], Batch] = lambda parts, _: sum(parts),  # type: ignore[arg-type, return-value]  # NumPy's sum
    ) -> None:
        self.slope: Batch | None = None
        self.way = way
        super().__init__(compute, weigh, reduce)

    def run(
        self, batch: Batch, theta: Batch, compute: Compute | None = None
    ) -> tuple[np.ndarray, Batch]:
        """See `Simulator`; alone it climbs along its own slope."""
        _, own = super().run(batch, theta, compute)
        slope = own if self.slope is None else self.slope
        return super().run(batch, theta + np.float32(0.3) * slope, compute)

    def list_slopes(self, batch: Batch, theta: Batch) -> list[Batch]:
        """Those of all shards."""
        parts = [batch[part] for part in shard_slices(SHARDS)]
        return [Simulator.run(self, part, theta)[1] for part in parts]

    def put_cluster(
        self,
        observed: dict[TraceKey, Value],
        replay: dict[TraceKey, Value],
        step: int,
        batch: Batch,
        theta: Batch,
    ) -> None:
        """See `Simulator`."""
        weights = [self.weigh(replica, SHARDS) for replica in range(len(SHARDS))]
        self.slope = self.way(self.list_slopes(batch, theta), weights)
        super().put_cluster(observed, replay, step, batch, theta)
        self.slope = None

    def make_evidence(self) -> Evidence:
        """See `Simulator`; with shards that are given the slope of all examples."""
        evidence = super().make_evidence()
        names = ("exchanged", "exchanged-regrouped", "exchanged-doubled")
        found: dict[str, dict[TraceKey, Value]] = {name: {} for name in names}
        sizes = np.array(SHARDS) / sum(SHARDS)
        weighed = {"met-sum": [1.0] * len(SHARDS), "met-mean": list(sizes)}
        starts = evidence.reference.select(phase="variable", replica=WHOLE)
        for step, theta in enumerate(np.asarray(value) for _, value in starts):
            if step == 3:
                break
            batch = self.draw(step)
            self.slope = Simulator.run(self, batch, theta)[1]
            self.put_shards(found["exchanged"], step, batch, theta)
            if step == 0:
                other = np.random.default_rng(1).permutation(batch)
                self.put_shards(found["exchanged-regrouped"], 0, other, theta)
                self.put_shards(found["exchanged-doubled"], 0, batch, theta, times=2)
            slopes = self.list_slopes(batch, theta)
            for name, weights in weighed.items():
                for way, factor in FACTORS.items():
                    self.slope = np.float32(factor) * add_up(slopes, weights)
                    met = found.setdefault(name + way, {})
                    self.put_met(met, step, batch, theta, weights)
            self.slope = None
        probes = {name: self.make_trace(values) for name, values in found.items()}
        return replace(evidence, probes={**evidence.probes, **probes})

    def put_met(
        self,
        values: dict[TraceKey, Value],
        step: int,
        batch: Batch,
        theta: Batch,
        weights: list[float],
    ) -> None:
        """What the shards compute, and what their step leaves.

        What they hand over is added up in float64 and rounded once, as one device does
        it: in float32 a sum that cancels is further off than a single rounding.
        """
        self.put_shards(values, step, batch, theta)
        parts = [
            np.asarray(values[key], np.float64)
            for key in values
            if (key.step, key.phase) == (step, "local_gradient")
        ]
        total = np.float32(add_up(parts, weights))
        for phase in ("reduced_gradient", "applied_gradient"):
            put(values, step, phase, total)
        put(values, step, "variable", theta - RATE * total)


def note(evidence: Evidence, **notes: object) -> Evidence:
    """With what the traced step of the cluster tells."""
    known: Mapping[str, object] = {
        **evidence.observed.notes,
        "exchange": "features",
        "exchange_by_gradients": True,
        "micro_steps": 2,
        **notes,
    }
    return replace(evidence, observed=replace(evidence.observed, notes=known))
