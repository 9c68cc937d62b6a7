"""Local gradients of a step, by what tapes gave in its micro-steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gradient_values import add_values
from training_simulator import Fault, observe, reduce_with

from distbench.compare.inside.of_micro_steps import take_sums
from distbench.evidence import Inside
from distbench.trace import WHOLE, TraceKey
from distbench.trace.intermediates import name_given


def test_sums_of_micro_steps_take_the_place_of_what_is_handed_over() -> None:
    evidence = observe(Fault(reduce=reduce_with(add_values)), sparse=False, steps=3)
    key = TraceKey(
        step=1, phase="local_gradient", variable="dense/kernel", replica=WHOLE
    )
    given = {
        replace(place, phase="loss", variable=name_given(number, place.variable)): part
        for place, value in evidence.observed.select(variable="dense/kernel")
        if place.phase == "local_gradient"
        for number, part in enumerate((value, value))
    }
    due = evidence.reference.values[key]
    given |= {
        replace(key, phase="loss", variable=name_given(number, "dense/kernel")): part
        for number, part in enumerate((due, -2 * due))
    }
    trace = replace(evidence.observed, values=given)
    inside = Inside(reference=trace, observed=trace)
    summed = take_sums(evidence, inside, range(1, 2))

    np.testing.assert_array_equal(summed.reference.values[key], -due)
    own = key.at(0)
    seen = evidence.observed.values[own]
    np.testing.assert_array_equal(summed.observed.values[own], 2 * seen)
    other = replace(own, variable="dense/bias")
    assert summed.observed.values[other] is evidence.observed.values[other]
    before = replace(own, step=0)
    assert summed.observed.values[before] is evidence.observed.values[before]
    assert max(key.step for key in summed.observed.values) == 1


def test_so_they_do_in_each_step_that_was_looked_into_and_not_of_two_updates() -> None:
    """The sum of all went to the first update, and later steps were let go."""
    evidence = observe(sparse=False, steps=3)
    first = TraceKey(step=0, phase="local_gradient", variable="dense/kernel", replica=0)
    values = evidence.observed.values
    given = {
        replace(first, step=step, phase="loss", variable=name_given(number, path)): part
        for path in ("dense/kernel", "dense/bias")
        for step in range(3)
        for number, part in enumerate(
            [values[replace(first, step=step, variable=path)]] * 2
        )
    }
    looked = replace(evidence.observed, replicas=1, shards=(16,), values=given)
    twice = {replace(first, step=2, call=1): values[replace(first, step=2)]}
    seen = replace(evidence.observed, replicas=1, shards=(16,))
    seen = replace(seen, values={**values, **twice})
    summed = take_sums(
        replace(evidence, observed=seen),
        Inside(reference=looked, observed=looked),
        range(3),
    ).observed.values

    for step, times in ((0, 2), (1, 2), (2, 1)):
        key = replace(first, step=step)
        np.testing.assert_array_equal(summed[key], times * values[key])
        other = replace(key, variable="dense/bias")
        np.testing.assert_array_equal(summed[other], 2 * values[other])
