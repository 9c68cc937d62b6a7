"""Which examples of a batch count in its gradients, where their places decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.examples import Counted
from distbench.trace import WHOLE, Phase, SparseRows, Trace, TraceKey, Value
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.twins import Twins
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_near, count_digits, widen
from distbench.worker.stepping.program import count_batch, take_examples

_MOST = 256
"""Examples of a batch: each is a few runs of a step."""
_STEPS = 3
"""Steps that are asked whether the places of examples decide."""
_ROUNDINGS = 8
"""So many of the largest value may each of a sum's addends be off."""
_MOVES = 3
"""Roundings under all of which another order changes a gradient that it leads."""
_ROUNDED = 8
"""So many times as far as rounding moves a gradient does an order that leads it."""
_OTHERS = 3
"""What is put in an example's place before that is taken not to count: two examples may
have no gradient, as under a hinge loss, or by chance the same one."""

_PHASES: tuple[Phase, ...] = ("local_gradient",)

Order = npt.NDArray[np.intp]
"""Numbers of examples of the global batch, in the order of a batch: [n]."""
_Gradients = Mapping[TraceKey, Value]


def find_counted(
    reference: Reference, tier: Tier, recorded: Trace, twins: Twins
) -> Counted | None:
    """Which examples count on one device, of the batch and of each shard alone.

    An example does not count in its place if any other one in it leaves every gradient
    as it is, bit for bit. That may be due to what it is, as under a loss that takes the
    hardest ones of a batch: their order does not matter then. So nobody is asked where
    the examples, each a place further on, come to the same.

    Where all count, it is asked of each variable's gradient to which they add what
    their places make of them, and nothing that follows from other examples: those that
    meet others may be meant to do so in their shard as well.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the steps start.
        recorded: What that gave.
        twins: Moves states by rounding.

    Returns:
        Of the first step whose shards do not make up its batch, and where the order
        matters. None where there is none such, where a step draws random numbers, which
        may choose among places, and for a workload of the bench.
    """
    is_known = reference.session.program.shards_known or not reference.repeats
    if is_known or reference.draws or reference.examples > _MOST:
        return None
    rounded: set[tuple[int, str]] = set()
    for step in range(min(_STEPS, reference.scenario.steps)):
        found = _Step(reference, tier, recorded, step, twins, rounded)
        if not found.is_made_up and found.is_ordered:
            return found.count()
    return None


class _Step:
    """A step of the reference, asked what its gradients are made of.

    Args:
        reference: Ran all its steps before.
        tier: From whose states the step starts.
        recorded: What that gave.
        step: Its number.
        twins: Moves states by rounding.
        rounded: Call and variable of gradients that rounding was seen to change as much
            as another order does; it adds those that it sees.
    """

    def __init__(
        self,
        reference: Reference,
        tier: Tier,
        recorded: Trace,
        step: int,
        twins: Twins,
        rounded: set[tuple[int, str]],
    ) -> None:
        self._reference = reference
        self._recorded = recorded
        self._twins = twins
        self._rounded = rounded
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
        return self._is_made_up(self._due[WHOLE])

    def _is_made_up(self, due: _Gradients) -> bool:
        """The same of some of the batch's gradients."""
        sizes = [len(order) for r, order in self._orders.items() if r != WHOLE]
        shares = [size / max(1, len(self._all)) for size in sizes]
        return not due or any(
            all(self._is_sum(key, value, weights) for key, value in due.items())
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
            self._is_led_by_order(replica, order)
            for replica, order in self._orders.items()
            if len(order) > 1
        )

    def _is_led_by_order(self, replica: int, order: Order) -> bool:
        """Whether another order changes some gradient, and more than rounding does.

        A deep network may magnify the rounding of a sum, and whether it does hangs on
        the last bits of all that it computes: so where these are moved another order
        has to change the same gradient each time, and none the one of this order.
        """
        turned = np.roll(order, 1)
        changed = self._list_astray(replica, self._run(replica, turned))
        noise = dict.fromkeys(changed, 0.0)
        for number in () if self._tier == "exact" else range(1, _MOVES + 1):
            if not changed:
                break
            own = self._run(replica, order, number)
            other = self._run(replica, turned, number)
            noise = {k: max(noise[k], self._measure(replica, k, own)) for k in changed}
            led = {
                key
                for key in changed
                if self._measure(replica, key, other) > _ROUNDED * noise[key]
            }
            self._rounded |= {(key.call, key.variable) for key in changed - led}
            changed = led
        return bool(changed)

    def _list_astray(self, replica: int, found: _Gradients) -> set[TraceKey]:
        """Gradients of other examples that are not near those due."""
        due = self._due[replica]
        return {
            key
            for key, value in found.items()
            if (key.call, key.variable) not in self._rounded
            and not (key in due and are_near(due[key], value, self._dtype))
        }

    def _measure(self, replica: int, key: TraceKey, found: _Gradients) -> float:
        """By what share of its norm a gradient is another one than is due."""
        if key not in found:
            return 0.0
        if key not in self._due[replica]:
            return math.inf
        due, seen = widen(self._due[replica][key]), widen(found[key])
        if due.shape != seen.shape:
            return math.inf
        change, size = np.linalg.norm(seen - due), np.linalg.norm(due)
        return float(change / max(size, np.finfo(np.float64).tiny))

    def count(self) -> Counted:
        """The examples that count, of the batch and of each shard."""
        led = {
            replica: [self._list_led(replica, order, p) for p in range(len(order))]
            for replica, order in self._orders.items()
        }
        found = self._count_led(led)
        if found.missed or found.added:
            return found
        of_one = [self._count_led(led, name) for name in self._list_by_place()]
        told = [one for one in of_one if one.missed or one.added] or of_one
        return replace(told[0], by_place=True) if told else found

    def _count_led(
        self, led: Mapping[int, Sequence[frozenset[str]]], variable: str = ""
    ) -> Counted:
        """The examples that lead a variable's gradient, or any."""
        found = {
            replica: tuple(
                int(example)
                for example, names in zip(order, led[replica], strict=True)
                if (variable in names if variable else names)
            )
            for replica, order in self._orders.items()
        }
        whole = found.pop(WHOLE)
        shards = tuple(found.values())
        return Counted(step=self._step, whole=whole, shards=shards, variable=variable)

    def _list_led(self, replica: int, order: Order, place: int) -> frozenset[str]:
        """The variables whose gradients some other example in a place changes."""
        every = frozenset(key.variable for key in self._due[replica])
        own = int(order[place])
        later = map(int, np.roll(self._all, -own - 1))
        others = list(islice((e for e in later if self._differ(e, own)), _OTHERS))
        if not others:
            return every  # nothing tells
        led: frozenset[str] = frozenset()
        for other in others:
            found = self._run(replica, _put(order, place, other))
            led |= self._list_changed(replica, found)
            if led == every:
                break
        return led

    def _list_by_place(self) -> list[str]:
        """Variables to whose gradients each example adds what its place makes of it.

        A batch with another example in each place is then off by as much as those with
        another one in the first place alone, in the second one alone, and so on, are
        together. Only where their order matters has that anything to do with places,
        and only where shards do not make up the batch are theirs others. Nor is it the
        program's doing where numbers are given that it draws in turns: by their places.
        """
        if self._reference.session.draws.are_given:
            return []
        due, turned = self._due[WHOLE], np.roll(self._all, 1)
        whole = self._run(WHOLE, turned)
        apart = [
            self._run(WHOLE, _put(self._all, place, int(other)))
            for place, other in enumerate(turned)
        ]
        if any(set(found) != set(due) for found in (whole, *apart)):
            return []
        by_name: dict[str, dict[TraceKey, Value]] = {}
        for key, value in due.items():
            by_name.setdefault(key.variable, {})[key] = value
        return [
            name
            for name in (v.path for v in self._recorded.variables)
            if (own := by_name.get(name))
            and not self._is_made_up(own)
            and not all(are_near(v, whole[k], self._dtype) for k, v in own.items())
            and all(
                self._adds_up(v, whole[k], [found[k] for found in apart])
                for k, v in own.items()
            )
        ]

    def _adds_up(self, due: Value, whole: Value, apart: Sequence[Value]) -> bool:
        """Whether one change is the sum of others; not where so many are too coarse."""
        values = [widen(due), widen(whole), *map(widen, apart)]
        kept = due.values if isinstance(due, SparseRows) else due
        digits = count_digits(self._dtype or kept.dtype.name)
        share = _ROUNDINGS * len(apart) * 2.0**-digits
        if share > 2.0 ** (-digits / 2):
            return False
        rest = values[1] - values[0] - sum(one - values[0] for one in values[2:])
        size = max(float(np.max(np.abs(value), initial=0.0)) for value in values)
        return bool(np.max(np.abs(rest), initial=0.0) <= share * size)

    def _differ(self, first: int, second: int) -> bool:
        leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(self._batch)]
        return any(not np.array_equal(leaf[first], leaf[second]) for leaf in leaves)

    def _run(self, replica: int, order: Order, move: int = 0) -> _Gradients:
        """Gradients of other examples; empty where the subject refuses them.

        Args:
            replica: Whose state the step starts from.
            order: The examples.
            move: By which rounding to move that state; 0 leaves it.
        """
        reference, step = self._reference, self._step
        batch: Any = take_examples(self._batch, order)
        values = reference.session.make_values()
        if replica == WHOLE:
            reference.session.restore_state(reference.starts[self._tier][step])
        else:
            reference.restore_shard(self._tier, step, replica)
        if move:
            start = reference.session.read_state()
            moved = self._twins.move(self._tier, move, step, start)
            reference.session.restore_state(moved)
        if replica == WHOLE:
            try:
                reference.run_whole(step, batch)
            except SubjectError:
                return {}  # examples may belong together, as those of one text
        elif not reference.runs_shard(step, batch):
            return {}
        reference.session.collect_taps(step, values, replica=replica, phases=_PHASES)
        return dict(values.items())

    @property
    def _dtype(self) -> str | None:
        return self._reference.narrowest or None

    def _list_changed(self, replica: int, found: _Gradients) -> frozenset[str]:
        """Variables of which a gradient has other bits; all where some are lacking."""
        due = self._due[replica]
        is_other = set(found) != set(due)
        return frozenset(
            key.variable
            for key, value in due.items()
            if is_other or not np.array_equal(widen(value), widen(found[key]))
        )


def _put(order: Order, place: int, example: int) -> Order:
    """An order with another example in one place."""
    changed = order.copy()
    changed[place] = example
    return changed
