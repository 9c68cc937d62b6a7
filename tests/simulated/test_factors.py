"""Gradients that are multiplied and divided again before they are added up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import add_up
from training_simulator import BIAS, Fault, observe

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.measure import measure_error
from distbench.compare.nature.factor import Factor, Factors
from distbench.compare.pairs.reduced import pair_direction
from distbench.diagnose.judge import judge
from distbench.trace import WHOLE, SparseRows, Trace, TraceKey
from distbench.trace.dtypes import find_dtype
from distbench.trace.files import read_trace, write_trace
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


SHAPE = (6, 4)
SUM = TraceKey(step=0, phase="reduced_gradient", variable="w", replica=WHOLE)


def make_reference(dtype, change, rows=None, steps=3):
    """One device that makes something of its gradients: f(gradient, step)."""
    rng = np.random.default_rng(0)
    values = {}
    for step in range(steps):
        size = SHAPE if rows is None else (len(rows), SHAPE[1])
        gradient = rng.normal(size=size).astype(find_dtype(dtype))
        reduced = change(gradient, step).astype(gradient.dtype)
        for phase, array in (
            ("local_gradient", gradient),
            ("reduced_gradient", reduced),
        ):
            value = (
                array
                if rows is None
                else SparseRows(indices=rows, values=array, shape=SHAPE)
            )
            values[replace(SUM, step=step, phase=phase)] = value
    return Trace(name="one", replicas=2, shards=(1, 1), variables=(), values=values)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("number", [0.1, 3.0, 0.25, -1.0, -0.1, 1e-3])
def test_a_number_is_found_as_far_as_the_dtype_shows_it(dtype, number):
    number = float(np.asarray(number, find_dtype(dtype)))
    factors = Factors(make_reference(dtype, lambda g, step: g * g.dtype.type(number)))
    found = factors.find(SUM)
    assert found is not None
    u = find_roundoff(dtype)
    assert abs(found.value / number - 1) <= found.spread + 2.0**-50
    assert found.spread <= 5 * u
    assert factors.scales(SUM)
    assert factors.find_sign(SUM) == np.sign(number)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_what_differs_from_step_to_step_is_no_number(dtype):
    numbers = (0.7, 0.7, 0.72)
    change = make_reference(dtype, lambda g, step: g * g.dtype.type(numbers[step]))
    assert Factors(change).find(SUM) is None
    assert Factors(change).scales(SUM)


def test_what_a_cluster_rounds_alone_is_counted():
    kept = make_reference("float32", lambda g, step: g)
    assert Factors(kept).find(SUM) == Factor(1.0)
    roundings = {SUM.variable: 4, "other": 6}
    assert Factors(kept, roundings).find(SUM) == Factor(1.0, roundings=4)


def test_a_gradient_of_zero_shows_no_number():
    def change(gradient, step):
        if step == 1:
            gradient[:] = 0
        return gradient * np.float32(0.1)

    reference = make_reference("float32", change)
    for step in range(3):
        found = Factors(reference).find(replace(SUM, step=step))
        assert found.value == pytest.approx(0.1)


def test_nor_does_it_where_what_is_equal_was_stored_once(tmp_path):
    def change(gradient, step):
        if step == 0:
            gradient[:] = 0
        return gradient * np.float32(-0.1)

    write_trace(make_reference("float32", change), tmp_path, "reference")
    reference = read_trace(tmp_path, "reference")
    for step in range(3):
        factors = Factors(reference)
        place = replace(SUM, step=step)
        assert factors.find(place).value == pytest.approx(-0.1)
        assert factors.find_sign(place) == -1


@pytest.mark.parametrize("number", [1.0, 0.5, 0.1])
def test_a_row_of_many_slices_does_not_hide_the_number(number):
    """As that of a padding number, which bfloat16 adds up to anything."""
    rows = np.array([0] * 300 + [1, 2, 3, 4, 5, 5], np.int64)
    reference = make_reference(
        "bfloat16", lambda g, step: g * g.dtype.type(number), rows
    )
    assert Factors(reference).find(SUM).value == pytest.approx(number, rel=0.01)


@pytest.mark.parametrize(("sign", "wrong"), [(1.0, True), (-1.0, False)])
def test_the_direction_of_a_sum_that_is_turned_round_is_the_other_one(sign, wrong):
    rng = np.random.default_rng(0)
    parts = tuple(rng.normal(size=SHAPE).astype(np.float32) for _ in range(2))
    value = np.float32(sign * 0.3) * (parts[0] + parts[1])
    [pair] = pair_direction(SUM.at(0), value, parts, "float32", -1.0)
    assert measure_error(pair.observed, pair.expected, pair.margin).wrong == wrong
