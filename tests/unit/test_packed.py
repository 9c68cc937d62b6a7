"""Gradients that are handed over in another shape than their variables have."""

from __future__ import annotations

import numpy as np

from distbench.trace import Trace, TraceKey, Value, VariableInfo
from distbench.trace.packed import find_packed, shape_gradients
from distbench.trace.values import SparseRows

INFOS = tuple(
    VariableInfo(path=path, role="variable", shape=shape, dtype="float32")
    for path, shape in (("kernel", (3, 2)), ("bias", (2,)))
)


def make_trace(**values: Value) -> Trace:
    """A step; names are `phase_variable`."""
    keys = {
        TraceKey(step=0, phase=f"{phase}_gradient", variable=path, replica=0): value
        for name, value in values.items()
        for phase, _, path in [name.partition("_")]
    }
    return Trace(name="one", replicas=1, shards=(2,), variables=INFOS, values=keys)


def test_a_flat_gradient_gets_the_shape_of_its_variable() -> None:
    flat = np.arange(6.0)
    trace = make_trace(reduced_kernel=flat, local_kernel=flat.reshape(3, 2))
    assert find_packed([trace]) == ()
    shaped = {
        key.phase: v.shape for key, v in shape_gradients(trace, ()).values.items()
    }
    assert shaped == {"reduced_gradient": (3, 2), "local_gradient": (3, 2)}


def test_what_holds_more_than_a_gradient_is_left_out_of_every_trace() -> None:
    trace = make_trace(
        local_bias=np.zeros(2),
        reduced_bias=np.zeros(3),
        applied_kernel=np.zeros((3, 2)),
    )
    other = make_trace(reduced_bias=np.zeros(2))
    packed = find_packed([other, trace])
    assert packed == ("bias",)
    left = {(k.phase, k.variable) for k in shape_gradients(trace, packed).values}
    assert left == {("local_gradient", "bias"), ("applied_gradient", "kernel")}
    assert not shape_gradients(other, packed).values


def test_gradients_as_they_are_stay() -> None:
    rows = SparseRows(
        indices=np.array([1]), values=np.zeros((1, 2), np.float32), shape=(3, 2)
    )
    trace = make_trace(reduced_kernel=rows, applied_bias=np.zeros(2))
    assert shape_gradients(trace, find_packed([trace])) is trace
