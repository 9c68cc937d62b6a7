"""Faults that apply to each replica's gradient what is meant for the sum."""

from __future__ import annotations

import numpy as np
from gradient_values import add_values, clip_norm, map_values, to_array
from planted_case import DENSE, Case
from training_simulator import KERNEL, Fault, reduce_with
from wrong_steps import (
    add_noise,
    clip_global,
    clip_slices,
    each,
    feed_back,
    on,
    quantise,
    reduce_some,
    take_unit,
    to_grid,
    top_k,
)

CASES = [
    Case(
        name="norm-clipped-first",
        code="clip-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(lambda v: clip_norm(v, 0.4))),
    ),
    Case(
        name="values-clipped-first",
        code="clip-before-reduction",
        phase="reduced_gradient",
        fault=Fault(
            reduce=each(
                lambda v: np.clip(to_array(v), np.float32(-0.1), np.float32(0.1))
            )
        ),
    ),
    Case(
        name="global-norm-clipped-first",
        code="clip-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=clip_global),
        setup={"replicas": 3},
    ),
    Case(
        name="norm-clipped-in-the-step",
        code="clip-before-reduction",
        phase="local_gradient",
        fault=Fault(local=on(DENSE, lambda v: clip_norm(v, 0.4))),
        setup={"replicas": 3},
    ),
    Case(
        name="signs-added-up",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(lambda v: map_values(to_array(v), np.sign))),
    ),
    Case(
        name="quantised-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(quantise)),
    ),
    Case(
        name="top-k-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=reduce_with(top_k)),
    ),
    Case(
        name="top-k-fed-back",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=feed_back(top_k)),
    ),
    Case(
        name="stochastic-grid-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(to_grid)),
    ),
    Case(
        name="noise-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(
            reduce=reduce_some(
                [KERNEL], lambda v: add_values([add_noise(x) for x in v])
            )
        ),
        setup={"width": 12, "draws": ("noise.py:3",)},
    ),
    Case(
        name="norm-of-slices-clipped-first",
        code="clip-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(lambda v: clip_slices(v, 0.1))),
    ),
    Case(
        name="unit-norms-added-up",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(take_unit)),
        steps=2,  # in the first alone, every norm is above 1: a clip does the same
    ),
    Case(
        name="norms-made-equal-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(lambda v: take_unit(v, 37.0))),
    ),
]
