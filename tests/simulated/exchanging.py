"""Programs whose replicas take something of each other before the gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from grouped_losses import SHARDS, WIDTH, Batch, against_the_others
from grouped_training import RATE, Simulator, by_share, put

from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Phase, TraceKey, Value


class Exchanging(Simulator):
    """Together the replicas compute the global batch, each its share of it.

    Args:
        scale: Factor of every replica's loss and gradient.
        bent: Which elements of the gradient get a wrong factor.
        least: The smallest of these factors; the largest is 0.9.
        off: Factor of the loss in the first step, and of each step's to the next one.
    """

    def __init__(
        self,
        *,
        scale: float = 1.0,
        bent: slice = slice(0),
        least: float = 0.5,
        off: float = 1.0,
    ) -> None:
        super().__init__(against_the_others)
        self.scale = scale
        self.bent = bent
        self.least = least
        self.off = off

    def put_cluster(
        self,
        observed: dict[TraceKey, Value],
        replay: dict[TraceKey, Value],
        step: int,
        batch: Batch,
        theta: Batch,
    ) -> None:
        """See `Simulator`."""
        loss, gradient = self.run(batch, theta)
        gradient[self.bent] *= np.linspace(self.least, 0.9, WIDTH)[self.bent]
        loss *= np.float32(self.off) ** (step + 1)
        parts = [np.float32(self.scale * by_share(r, SHARDS)) for r in range(3)]
        reduced = np.float32(sum(part * gradient for part in parts))
        for replica, part in enumerate(parts):
            put(observed, step, "loss", loss * part, replica)
            put(observed, step, "local_gradient", gradient * part, replica)
            put(observed, step, "reduced_gradient", reduced, replica)
            for values in (observed, replay):
                put(values, step, "applied_gradient", reduced, replica)
                put(values, step, "variable", theta - RATE * reduced, replica)


def note(evidence: Evidence, exchange: str, **of_reference: object) -> Evidence:
    """With what the replicas exchanged, and notes about the single-device run."""
    drawn = {"draws": {}, **of_reference}
    notes: Mapping[str, object] = {**evidence.reference.notes, **drawn}
    return replace(
        evidence,
        observed=replace(evidence.observed, notes={"draws": {}, "exchange": exchange}),
        reference=replace(evidence.reference, notes=notes),
    )


def round_whole(
    evidence: Evidence,
    share: float,
    exchange: str = "features",
    phases: Sequence[Phase] = COMPUTED,
) -> Evidence:
    """A step in float16, and how far a rounding to it moves the global batch's."""
    evidence = note(evidence, exchange, narrowest="float16")
    rng = np.random.default_rng(5)
    moved = {
        f"rounded-{number}": replace(
            evidence.reference,
            values={
                key: value * (1 + share * rng.choice([-1, 1], size=np.shape(value)))
                for key, value in evidence.reference.select(replica=WHOLE)
                if key.phase in phases
            },
        )
        for number in range(4)
    }
    return replace(evidence, probes={**evidence.probes, **moved})
