"""Gradients that are multiplied and divided again before they are added up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gradient_values import add_up
from training_simulator import BIAS, Fault, observe

from distbench.compare.factor import Factor, Factors
from distbench.diagnose.judge import judge
from distbench.trace import WHOLE, TraceKey
from distbench.verdict import Status

_FORTY = np.float32(40)


def round_twice(gradients):
    """As a clip by a norm leaves what it does not clip."""
    return {path: value * _FORTY / _FORTY for path, value in gradients.items()}


def see(reduce):
    """A run whose optimizer rounds each gradient, but by chance none of a bias.

    One device is handed another gradient of it than the replicas are.
    """
    evidence = observe(Fault(reduce=reduce), sparse=False)
    values = {
        key: value * _FORTY / _FORTY
        if key.phase == "reduced_gradient" and key.variable != BIAS
        else value
        for key, value in evidence.reference.values.items()
    }
    reference = replace(evidence.reference, values=values)
    return replace(evidence, reference=reference)


def add_rounded(locals_, step):
    del step
    return [add_up([round_twice(g) for g in locals_])] * len(locals_)


def add_rounded_but_for_a_millionth(locals_, step):
    summed = add_rounded(locals_, step)[0]
    return [{p: v * np.float32(1 + 4e-6) for p, v in summed.items()}] * len(locals_)


def test_what_rounds_on_one_device_may_round_in_every_variable():
    evidence = see(add_rounded)
    key = TraceKey(step=0, phase="reduced_gradient", variable=BIAS, replica=WHOLE)
    assert Factors(evidence.reference).find(key) == Factor(1.0, roundings=2)
    assert judge(evidence).status is Status.PASS


def test_what_does_not_is_held_against_the_sum_alone():
    evidence = observe(Fault(reduce=add_rounded), sparse=False)
    assert judge(evidence).status is Status.FAIL


def test_a_factor_of_some_roundings_is_still_found():
    judgement = judge(see(add_rounded_but_for_a_millionth))
    assert judgement.findings[0].code == "scale-error"
