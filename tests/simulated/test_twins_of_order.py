"""A twin whose examples come in another order is none where the order matters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gradient_values import to_array
from training_simulator import KERNEL, observe

from distbench.compare.state.measured_noise import measure_noise
from distbench.trace import WHOLE, TraceKey


def permute_twin(evidence, *, steps, phases):
    """Half of the twins get another order, which moves these values by a half."""

    def move(twin):
        values = {
            key: to_array(value) * 1.5
            if key.phase in phases and key.variable == KERNEL and key.step in steps
            else value
            for key, value in twin.values.items()
        }
        return replace(twin, values=values, notes={**twin.notes, "permuted": True})

    first, *others = evidence.twins
    return replace(evidence, twins=(move(first), *others))


def measure_widest(evidence):
    key = TraceKey(step=0, phase="reduced_gradient", variable=KERNEL, replica=WHOLE)
    due = to_array(evidence.reference.get(key))
    return measure_noise(evidence).find_margin(key, due).widest / abs(due).max()


@pytest.mark.parametrize("phase", ["local_gradient", "reduced_gradient"])
def test_an_order_that_moves_a_gradient_in_each_step_widens_no_bound(phase):
    phases = [phase, "reduced_gradient"]
    evidence = permute_twin(observe(), steps=(0, 1), phases=phases)
    assert measure_widest(evidence) < 1e-2


def test_what_an_order_moves_now_and_then_is_noise():
    evidence = permute_twin(observe(), steps=(1,), phases=["reduced_gradient"])
    assert measure_widest(evidence) > 0.1


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_kink_that_a_narrow_dtype_crosses_is_no_order(is_turned):
    """One of the runs that lose more than a twin is led by another branch."""
    phases = ["local_gradient"]
    evidence = observe()
    turned, *_ = permute_twin(evidence, steps=(1,), phases=phases).twins
    noise = measure_noise(evidence, [replace(turned, notes={"permuted": is_turned})])
    assert not noise.ordered
    error, _ = noise.limits[("local_gradient", KERNEL, 0), None]
    assert error > 0.1


def test_an_order_is_told_by_twins_alone():
    phases = ["local_gradient"]
    evidence = permute_twin(observe(), steps=(1,), phases=phases)
    assert measure_noise(evidence, evidence.twins[1:]).ordered
