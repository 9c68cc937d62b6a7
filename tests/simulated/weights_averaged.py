"""Runs of a program that keeps an average of its kernel beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from gradient_values import to_array
from training_simulator import KERNEL, Fault, Setup, Simulation

from distbench.evidence import Evidence
from distbench.trace import INITIAL, Trace, TraceKey, VariableInfo
from distbench.trace.numbers import densify

AVERAGE = "average/kernel"
F = np.float32


def observe_average(
    decay: float, fault: Fault, *, taken: float = 0.0, by_shard: bool = True
) -> Evidence:
    """A run with an average of the kernel that follows its step.

    Args:
        decay: What stays of the average on one device.
        fault: Of the run beside it.
        taken: The same on the cluster; as on one device if it is 0.
        by_shard: Whether it is known what each shard alone makes of it.
    """
    setup = Setup(steps=3)
    evidence = Simulation(setup).observe(fault)
    kernel = TraceKey(step=INITIAL, phase="variable", variable=KERNEL)
    starts = {INITIAL: densify(evidence.reference.values[kernel]).astype(F)}

    def go(start: np.ndarray, end: np.ndarray, kept: float) -> np.ndarray:
        return (F(kept) * start + F(1 - kept) * end.astype(F)).astype(F)

    def follow(trace: Trace, kept: float) -> Trace:
        values = dict(trace.values)
        for key, value in trace.values.items():
            if key == replace(kernel, step=key.step, replica=key.replica):
                end = densify(value)
                at = replace(key, variable=AVERAGE)
                if key.step == INITIAL:
                    values[at] = end.astype(F)
                else:
                    values[at] = go(starts[key.step - 1], end, kept)
        info = VariableInfo(
            path=AVERAGE,
            role="variable",
            shape=starts[INITIAL].shape,
            dtype="float32",
            trainable=False,
        )
        return replace(trace, values=values, variables=(*trace.variables, info))

    for step in range(setup.steps):
        end = densify(evidence.reference.values[replace(kernel, step=step)])
        starts[step] = go(starts[step - 1], end, decay)
    reference = follow(evidence.reference, decay)
    if by_shard:
        alone = {
            replace(key, phase="variable", variable=AVERAGE): go(
                starts[key.step - 1], end, decay
            )
            for key, end in _list_ends(evidence.reference, setup.rule.rate)
        }
        reference = replace(reference, values={**reference.values, **alone})
    return replace(
        evidence,
        reference=reference,
        observed=follow(evidence.observed, taken or decay),
        twins=tuple(follow(twin, decay) for twin in evidence.twins),
        fed=evidence.fed.change_traces(lambda trace: follow(trace, decay)),
    )


def _list_ends(reference: Trace, rate: float) -> Iterator[tuple[TraceKey, np.ndarray]]:
    """Where each shard alone leads the kernel, under the key of its gradient."""
    for step in range(reference.steps):
        key = TraceKey(step=step, phase="local_gradient", variable=KERNEL)
        before = reference.values[replace(key, step=step - 1, phase="variable")]
        for replica in range(reference.replicas):
            gradient = to_array(reference.values[key.at(replica)])
            yield key.at(replica), densify(before) - F(rate) * gradient
