"""Which examples of a batch count in its gradients, where their places decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.examples import Counted
from distbench.trace import WHOLE, Phase, Trace, TraceKey, Value
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_near, widen
from distbench.worker.stepping.program import count_batch, take_examples

_MOST = 256
"""Examples of a batch: each is a few runs of a step."""
_STEPS = 3
"""Steps that are asked whether the places of examples decide."""
_OTHERS = 3
"""What is put in an example's place before that is taken not to count: two examples may
have no gradient, as under a hinge loss, or by chance the same one."""

_PHASES: tuple[Phase, ...] = ("local_gradient",)

Order = npt.NDArray[np.intp]
"""Numbers of examples of the global batch, in the order of a batch: [n]."""
_Gradients = Mapping[TraceKey, Value]


def find_counted(reference: Reference, tier: Tier, recorded: Trace) -> Counted | None:
    """Which examples count on one device, of the batch and of each shard alone.

    An example does not count in its place if any other one in it leaves every gradient
    as it is, bit for bit. That may be due to what it is, as under a loss that takes the
    hardest ones of a batch: their order does not matter then. So nobody is asked where
    the examples, each a place further on, come to the same.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.
        recorded: What that gave.

    Returns:
        Of the first step whose shards do not make up its batch, and where the order
        matters. None where there is none such, where a step draws random numbers, which
        may choose among places, and for a workload of the bench.
    """
    is_known = reference.session.program.shards_known or not reference.repeats
    if is_known or reference.draws or reference.examples > _MOST:
        return None
    for step in range(min(_STEPS, reference.scenario.steps)):
        found = _Step(reference, tier, recorded, step)
        if not found.is_made_up and found.is_ordered:
            return found.count()
    return None


class _Step:
    """A step of the reference, asked what its gradients are made of."""

    def __init__(
        self, reference: Reference, tier: Tier, recorded: Trace, step: int
    ) -> None:
        self._reference = reference
        self._tier = tier
        self._step = step
        self._batch = reference.draw(step)
        self._all = np.arange(count_batch(self._batch))
        parts = reference.sizes.cut(step, self._all)
        self._orders: dict[int, Order] = {WHOLE: self._all, **dict(enumerate(parts))}
        self._due: dict[int, _Gradients] = {
            replica: dict(
                recorded.select(step=step, phase="local_gradient", replica=replica)
            )
            for replica in self._orders
        }

    @property
    def is_made_up(self) -> bool:
        """Whether the shards' gradients add up to the batch's, as they are or by size.

        So they are where some of them are not known.
        """
        sizes = [len(order) for r, order in self._orders.items() if r != WHOLE]
        shares = [size / max(1, len(self._all)) for size in sizes]
        return not self._due[WHOLE] or any(
            all(
                self._is_sum(key, value, weights)
                for key, value in self._due[WHOLE].items()
            )
            for weights in ([1.0] * len(sizes), shares)
        )

    def _is_sum(self, key: TraceKey, value: Value, weights: list[float]) -> bool:
        parts = [self._due[r].get(replace(key, replica=r)) for r in range(len(weights))]
        known = [widen(part) for part in parts if part is not None]
        if len(known) < len(parts):
            return True
        total = sum(w * part for w, part in zip(weights, known, strict=True))
        return are_near(value, np.asarray(total, widen(value).dtype), self._dtype)

    @property
    def is_ordered(self) -> bool:
        """Whether the order of examples leads a gradient of the batch or of a shard."""
        return any(
            not self._is_near(replica, found)
            for replica, order in self._orders.items()
            if len(order) > 1
            for found in [self._run(replica, np.roll(order, 1))]
            if found
        )

    def count(self) -> Counted:
        """The examples that count, of the batch and of each shard."""
        found = {r: self._list_counted(r, order) for r, order in self._orders.items()}
        whole = found.pop(WHOLE)
        return Counted(step=self._step, whole=whole, shards=tuple(found.values()))

    def _list_counted(self, replica: int, order: Order) -> tuple[int, ...]:
        places = range(len(order))
        return tuple(int(order[p]) for p in places if self._counts(replica, order, p))

    def _counts(self, replica: int, order: Order, place: int) -> bool:
        """Whether some other example in a place leads to another gradient."""
        own = int(order[place])
        later = map(int, np.roll(self._all, -own - 1))
        others = list(islice((e for e in later if self._differ(e, own)), _OTHERS))
        for other in others:
            changed = order.copy()
            changed[place] = other
            if not self._is_same(replica, self._run(replica, changed)):
                return True
        return not others  # nothing tells

    def _differ(self, first: int, second: int) -> bool:
        leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(self._batch)]
        return any(not np.array_equal(leaf[first], leaf[second]) for leaf in leaves)

    def _run(self, replica: int, order: Order) -> _Gradients:
        """Gradients of other examples; empty where the subject refuses them."""
        reference, step = self._reference, self._step
        batch: Any = take_examples(self._batch, order)
        values = reference.session.make_values()
        if replica == WHOLE:
            reference.session.restore_state(reference.starts[self._tier][step])
            try:
                reference.run_whole(step, batch)
            except SubjectError:
                return {}  # examples may belong together, as those of one text
        else:
            reference.restore_shard(self._tier, step, replica)
            if not reference.runs_shard(step, batch):
                return {}
        reference.session.collect_taps(step, values, replica=replica, phases=_PHASES)
        return dict(values.items())

    @property
    def _dtype(self) -> str | None:
        return self._reference.narrowest or None

    def _is_near(self, replica: int, found: _Gradients) -> bool:
        due = self._due[replica]
        return all(
            key in due and are_near(due[key], value, self._dtype)
            for key, value in found.items()
        )

    def _is_same(self, replica: int, found: _Gradients) -> bool:
        due = self._due[replica]
        return set(found) == set(due) and all(
            np.array_equal(widen(due[key]), widen(value))
            for key, value in found.items()
        )
