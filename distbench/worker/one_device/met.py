"""Shards that meet on one device: each is given what all of them together exchange.

A step may sum gradients and go on from the sum to another loss, as a climb up the slope
does, or the second of two networks that are trained in turn. What a shard alone makes
of that loss follows from its own gradients, and what it makes with those of the global
batch is no measure either under batch statistics. So all shards are run, what they
hand to their collectives is put together, and they are run again with that, until it
changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.trace import COMPUTED, SUMMED, WHOLE, Recorded, Trace
from distbench.trace.dtypes import is_floating
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.components import read_component, write_component
from distbench.worker.state.values import have_same_bits
from distbench.worker.stepping.program import count_batch
from distbench.worker.stepping.session import Session
from distbench.worker.taps.collect import State
from distbench.worker.taps.exchanged import Collective

_Number = npt.NDArray[np.generic]


def let_meet(reference: Reference, tier: Tier) -> Mapping[str, Trace]:
    """Shards that take what all of them exchange, as the replicas of a cluster do.

    Gradients are put together as those of all shards make up the whole: whatever the
    program asks for, a sum of them where its loss is a sum over examples, and a mean by
    the number of examples where that is a mean. Else its own word counts.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.

    Returns:
        `met-sum` and `met-mean`: loss and gradients of each shard, and what their step
        leaves of state that all have alike; the same where gradients are put together
        to 1/N of it, or to N times as much, as `met-sum-divided` and so on. Empty where
        no collective comes between the gradients of two losses, where shards do not
        agree, or where what they hand over is not all seen: then they leave different
        state.
    """
    if not reference.exchanged.is_between or reference.scenario.injected:
        return {}
    n = reference.replicas
    factors = {"": 1.0, "-divided": 1 / n, "-multiplied": float(n)}
    found = {}
    try:
        meeting = _Meeting(reference, tier)
        for is_mean, (name, factor) in product((False, True), factors.items()):
            values = meeting.hold(is_mean=is_mean, factor=factor)
            if values is None:
                return {}
            way = f"met-{'mean' if is_mean else 'sum'}{name}"
            found[way] = reference.make_trace(way, values)
    except SubjectError:
        return {}
    return found


class _Meeting:
    """Runs each step of a reference on all shards, until they agree."""

    def __init__(self, reference: Reference, tier: Tier) -> None:
        self._reference = reference
        self._tier: Tier = tier
        self._exchanged = reference.exchanged
        self._whole_step = reference.keeping
        self._shard_step = reference.session.make_step(
            any_size=reference.shard_step.any_size and self._exchanged.fits_any_size
        )
        self._kept = self._exchanged.list_kept()

    def hold(self, *, is_mean: bool, factor: float) -> Recorded | None:
        """What the shards come to; None where those of a step come to no end.

        Args:
            is_mean: Whether gradients are averaged by the number of examples.
            factor: What they are multiplied by.
        """
        reference = self._reference
        values = reference.session.make_values()
        for step, batch, start in reference.list_steps(self._tier):
            shards = list(reference.sizes.cut(step, batch))
            shares = [count_batch(shard) / count_batch(batch) for shard in shards]
            weights = [factor * (share if is_mean else 1.0) for share in shares]
            reference.session.restore_state(start)
            reference.run_whole(step, batch, self._whole_step)
            # What one collective gives may change what the next one is handed.
            for _ in range(len(self._kept) + 1):
                taken = self._run(step, shards, values)
                if taken is None:
                    return None
                if not _give(self._kept, taken, weights):
                    break
            else:
                return None
        return values

    def _run(
        self, step: int, shards: Sequence[Any], values: Recorded
    ) -> Sequence[Sequence[_Number]] | None:
        """Run all shards; returns what each hands over, or None if they are at odds."""
        reference, session = self._reference, self._reference.session
        taken: list[list[_Number]] = []
        left: list[State] = []
        for replica, shard in enumerate(shards):
            reference.starts.restore_shard(self._tier, step, replica)
            with self._exchanged.give():
                reference.run_shard(step, shard, self._shard_step)
            if not self._exchanged.is_complete:
                return None
            taken.append([read_component(one.taken) for one in self._kept])
            left.append(session.read_state(reference.shared))
            _collect(session, step, replica, values)
        if not all(
            have_same_bits(one[key], left[0][key]) for one in left for key in one
        ):
            return None
        session.collect_state(step, left[0], values, replica=WHOLE)
        return taken


def _collect(session: Session, step: int, replica: int, values: Recorded) -> None:
    """Keep what a shard computes, and of the first one what all are given."""
    found = session.make_values()
    session.collect_taps(step, found, replica=replica)
    values.update(found.keep(lambda key: key.phase in COMPUTED))
    if replica == 0:
        given = found.keep(lambda key: key.phase in SUMMED)
        values.update(given.rename(lambda key: key.at(WHOLE)))


def _give(
    kept: Sequence[Collective],
    taken: Sequence[Sequence[_Number]],
    weights: Sequence[float],
) -> bool:
    """Put together what shards have handed over; True where that is something else."""
    is_new = False
    for one, parts in zip(kept, zip(*taken, strict=True), strict=True):
        together = _join(one, parts, weights)
        if not have_same_bits(read_component(one.given), together):
            write_component(one.given, together)
            is_new = True
    return is_new


def _join(
    one: Collective, parts: Sequence[_Number], weights: Sequence[float]
) -> _Number:
    dtype, n = parts[0].dtype, len(parts)
    if not one.of_gradient:
        weights = [1 / n if one.operation == "MEAN" else 1.0] * n
    if one.operation and is_floating(dtype):
        wide = [np.asarray(part, np.float64) for part in parts]
        parts = [w * part for w, part in zip(weights, wide, strict=True)]
    if one.axis is None:
        return np.asarray(np.sum(parts, axis=0), dtype)
    return np.asarray(np.concatenate(parts, axis=one.axis), dtype)
