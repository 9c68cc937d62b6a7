"""The noise of a step is that of all steps that round alike."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from gradient_values import to_array
from training_simulator import KERNEL, observe

from distbench.compare.state.measured_noise import measure_noise
from distbench.compare.state.samples import Sample, limit_pools
from distbench.trace import Trace, TraceKey
from distbench.trace.numbers import measure_size


def test_a_zero_that_is_one_by_chance_hides_nothing_of_other_steps():
    """As the way from the start is in the first step, but for what twins add to it."""
    evidence = observe(steps=3)
    keys = [
        key for key, _ in evidence.reference.select(phase="variable", variable=KERNEL)
    ]
    first, second = (next(k for k in keys if k.step == step) for step in (0, 1))
    values = evidence.reference.values
    usual = measure_noise(evidence).find_margin(second, to_array(values[second]))
    none = {**values, first: 0 * values[first]}
    reference = replace(evidence.reference, values=none)
    noise = measure_noise(replace(evidence, reference=reference))
    assert noise.find_margin(first, to_array(none[first])).widest == np.inf
    margin = noise.find_margin(second, to_array(values[second]))
    assert 0 < margin.widest < 10 * usual.widest


def test_rounding_of_what_is_left_hides_nothing_of_steps_that_have_more():
    """As a gradient is that of a fit which has converged."""
    evidence = observe(steps=3)
    keys = evidence.reference.select(phase="variable", variable=KERNEL)
    first, last = (key for key, _ in keys if key.step in (0, 2))
    usual = find_bounds(evidence, first, last)

    def shrink(trace: Trace, times: float) -> Trace:
        return replace(trace, values={**trace.values, last: times * trace.values[last]})

    left = replace(
        evidence,
        reference=shrink(evidence.reference, 1e-7),
        twins=tuple(shrink(t, 1e-7 * (n + 1)) for n, t in enumerate(evidence.twins)),
    )
    found = find_bounds(left, first, last)
    assert 0 < found[0] < 10 * usual[0]
    size = measure_size(left.reference.values[last])
    assert found[1] > size  # its digits are all rounding


@pytest.mark.parametrize(("dtype", "counts"), [("float32", False), ("bfloat16", True)])
def test_what_a_narrow_dtype_may_round_counts_in_steps_of_other_sizes(dtype, counts):
    """Where no dtype of the step rounds so much, terms have cancelled."""
    pool = "loss", "", 0
    sample = partial(Sample, ratio=0.0, u=2.0**-24)
    found = [
        *(sample(step=0, size=1.0, error=1e-7) for _ in range(3)),
        *(sample(step=1, size=1e-3, error=5e-3) for _ in range(3)),
    ]
    limits = limit_pools({pool: found}, narrowest=dtype)
    alone = limit_pools({pool: found[:3]})
    assert (limits[pool, 0][0] > 1e-2) is counts
    assert counts or limits[pool, 0] == alone[pool, 0]


def test_one_update_is_as_noisy_in_every_step():
    evidence = replace(observe(steps=3), tier="exact")
    replay = evidence.fed.replays["reduced_gradient"]
    moved = {k: to_array(v) * np.float32(1 + 1e-6) for k, v in replay.values.items()}
    fed = replace(evidence.fed, op_by_op=replace(replay, values=moved))
    limits = measure_noise(replace(evidence, fed=fed)).compiled
    pool = "variable", KERNEL, 0
    assert limits[pool, 0] == limits[pool, 2] == limits[pool, None]


def find_bounds(evidence, *keys: TraceKey) -> list[float]:
    noise, values = measure_noise(evidence), evidence.reference.values
    return [noise.find_margin(key, to_array(values[key])).widest for key in keys]
