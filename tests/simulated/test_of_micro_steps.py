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
    summed = take_sums(evidence, Inside(reference=trace, observed=trace), 1)

    np.testing.assert_array_equal(summed.reference.values[key], -due)
    own = key.at(0)
    seen = evidence.observed.values[own]
    np.testing.assert_array_equal(summed.observed.values[own], 2 * seen)
    other = replace(own, variable="dense/bias")
    assert summed.observed.values[other] is evidence.observed.values[other]
    before = replace(own, step=0)
    assert summed.observed.values[before] is evidence.observed.values[before]
    assert max(key.step for key in summed.observed.values) == 1
