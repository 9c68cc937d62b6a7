"""Slots of which every replica has a copy, made of gradients that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from gradient_values import scale
from training_simulator import HEAD, RIGHT, Fault, Rule, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Phase, Trace, TraceKey, VariableInfo
from distbench.trace.numbers import densify
from distbench.verdict import Status

F = np.float32


def keep_own_momentum(fault: Fault) -> Evidence:
    """A rule of signs, beside a momentum of which every replica has a copy."""
    evidence = observe(
        fault, rule=Rule(name="sign"), loss_reduction="sum", shards_known=False
    )
    shape = evidence.reference.values[
        TraceKey(step=INITIAL, phase="variable", variable=HEAD, replica=WHOLE)
    ].shape
    info = VariableInfo(
        path="own",
        role="slot",
        of=HEAD,
        shape=shape,
        dtype="float32",
        synchronised=False,
        trainable=False,
        adds_up=False,
    )

    def join(trace: Trace, phase: Phase, replicas: Sequence[int]) -> Trace:
        values = {**trace.values}
        for r in replicas:
            key = TraceKey(step=INITIAL, phase="slot", variable="own", replica=r)
            values[key] = held = np.zeros(shape, F)
            for step in range(trace.steps):
                seen = replace(key, step=step, phase=phase, variable=HEAD)
                held = F(0.75) * held + F(0.25) * densify(values[seen]).astype(F)
                values[replace(key, step=step)] = held
        return replace(trace, variables=(*trace.variables, info), values=values)

    everyone = range(evidence.observed.replicas)
    return replace(
        evidence,
        observed=join(evidence.observed, "reduced_gradient", everyone),
        reference=join(evidence.reference, "local_gradient", [WHOLE, *everyone]),
        twins=tuple(join(t, "local_gradient", [WHOLE]) for t in evidence.twins),
    )


def test_own_slots_of_gradients_that_signs_forgive_are_right() -> None:
    assert judge(keep_own_momentum(RIGHT)).status is Status.PASS


def test_gradients_are_not_forgiven_that_own_slots_take_in() -> None:
    """The variable comes out right by its sign, and its momentum does not."""
    fault = Fault(local=lambda g, r, step: {k: scale(v, 2.0) for k, v in g.items()})
    (found,) = judge(keep_own_momentum(fault)).findings
    assert (found.code, found.phase) == ("loss-not-scaled", "local_gradient")
    assert found.variable == HEAD
