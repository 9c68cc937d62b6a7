"""Which examples of a batch count in its gradients, where their places decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import tensorflow as tf

from distbench.evidence import Tier
from distbench.examples import Counted
from distbench.trace import WHOLE, Trace, Value
from distbench.trace.numbers import densify
from distbench.worker.one_device.ordered import Ordering
from distbench.worker.one_device.rearranged import Gradients, Order, Rearranged
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.twins import Twins
from distbench.worker.state.values import are_near, count_digits, find_half

_MOST = 256
"""Examples of a batch: each is a few runs of a step."""
_STEPS = 3
"""Steps that are asked whether the places of examples decide."""
_ROUNDINGS = 8
"""So many of the largest value may each of a sum's addends be off."""
_OTHERS = 3
"""What is put in an example's place before that is taken not to count: two examples may
have no gradient, as under a hinge loss, or by chance the same one."""


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
    if not can_be_asked(reference):
        return None
    ordering = Ordering()
    for number in range(min(_STEPS, reference.scenario.steps)):
        step = Rearranged(reference, tier, recorded, number, twins)
        if not step.is_made_up(step.due[WHOLE]) and ordering.leads(step):
            names = [variable.path for variable in recorded.variables]
            by_place = [] if reference.session.draws.are_given else names
            return _count(step, by_place)
    return None


def can_be_asked(reference: Reference) -> bool:
    """Whether nothing but its examples makes a step what it is, and they are few."""
    is_known = reference.session.program.shards_known or not reference.repeats
    return not (is_known or reference.draws or reference.examples > _MOST)


def _count(step: Rearranged, names: Sequence[str]) -> Counted:
    """The examples that count in a step, of the batch and of each shard.

    Args:
        step: Asked for gradients.
        names: Of variables to which examples may add what their places make of them. It
            is not the program's doing where numbers are given that it draws in turns:
            by their places.
    """
    led = {
        replica: [_list_led(step, replica, order, p) for p in range(len(order))]
        for replica, order in step.orders.items()
    }
    found = _count_led(step, led)
    if found.missed or found.added:
        return found
    of_one = [_count_led(step, led, name) for name in list_by_place(step, names)]
    told = [one for one in of_one if one.missed or one.added] or of_one
    return replace(told[0], by_place=True) if told else found


def _count_led(
    step: Rearranged, led: Mapping[int, Sequence[frozenset[str]]], variable: str = ""
) -> Counted:
    """The examples that lead a variable's gradient, or any."""
    found = {
        replica: tuple(
            int(example)
            for example, names in zip(order, led[replica], strict=True)
            if (variable in names if variable else names)
        )
        for replica, order in step.orders.items()
    }
    whole = found.pop(WHOLE)
    shards = tuple(found.values())
    return Counted(step=step.step, whole=whole, shards=shards, variable=variable)


def _list_led(
    step: Rearranged, replica: int, order: Order, place: int
) -> frozenset[str]:
    """The variables whose gradients some other example in a place changes."""
    due = step.due[replica]
    every = frozenset(key.variable for key in due)
    own = int(order[place])
    later = map(int, np.roll(step.examples, -own - 1))
    others = list(islice((e for e in later if _differ(step, e, own)), _OTHERS))
    if not others:
        return every  # nothing tells
    led: frozenset[str] = frozenset()
    for other in others:
        led |= _list_changed(due, step.run(replica, _put(order, place, other)))
        if led == every:
            break
    return led


def list_by_place(step: Rearranged, names: Sequence[str]) -> list[str]:
    """Variables to whose gradients each example adds what its place makes of it.

    A batch with another example in each place is then off by as much as those with
    another one in the first place alone, in the second one alone, and so on, are
    together. Only where their order matters has that anything to do with places, and
    only where shards do not make up the batch are theirs others.
    """
    if not names:
        return []
    due, turned = step.due[WHOLE], np.roll(step.examples, 1)
    whole = step.run(WHOLE, turned)
    apart = [
        step.run(WHOLE, _put(step.examples, place, int(other)))
        for place, other in enumerate(turned)
    ]
    if any(set(found) != set(due) for found in (whole, *apart)):
        return []
    return [
        name
        for name in names
        if (own := step.get_due(name))
        and not step.is_made_up(own)
        and not all(are_near(v, whole[k], step.dtype) for k, v in own.items())
        and all(
            _adds_up(v, whole[k], [found[k] for found in apart], step.dtype)
            for k, v in own.items()
        )
    ]


def _adds_up(due: Value, whole: Value, apart: Sequence[Value], dtype: str) -> bool:
    """Whether one change is the sum of others; not where so many are too coarse."""
    values = [densify(due), densify(whole), *map(densify, apart)]
    share = _ROUNDINGS * len(apart) * 2.0 ** -count_digits(dtype)
    if share > find_half(dtype):
        return False
    rest = values[1] - values[0] - sum(one - values[0] for one in values[2:])
    size = max(float(np.max(np.abs(value), initial=0.0)) for value in values)
    return bool(np.max(np.abs(rest), initial=0.0) <= share * size)


def _differ(step: Rearranged, first: int, second: int) -> bool:
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(step.batch)]
    return any(not np.array_equal(leaf[first], leaf[second]) for leaf in leaves)


def _list_changed(due: Gradients, found: Gradients) -> frozenset[str]:
    """Variables of which a gradient has other bits; all where some are lacking."""
    is_other = set(found) != set(due)
    return frozenset(
        key.variable
        for key, value in due.items()
        if is_other or not np.array_equal(densify(value), densify(found[key]))
    )


def _put(order: Order, place: int, example: int) -> Order:
    """An order with another example in one place."""
    changed = order.copy()
    changed[place] = example
    return changed
