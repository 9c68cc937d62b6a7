"""Gradients that are multiplied by a number of the program, which is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import add_up, scale
from training_simulator import Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo

_STEPS = 3
_RATE = VariableInfo(
    path="rate", role="variable", shape=(), dtype="float32", trainable=False
)


pytestmark = pytest.mark.usefixtures("limit_held")


def double(locals_: Any, step: int) -> Any:
    """From the second step on twice the sum."""
    total = add_up(locals_)
    return [{k: scale(v, 2 if step else 1) for k, v in total.items()}] * len(locals_)


def add_rate(
    due: Sequence[float], held: Sequence[float], replayed: Sequence[float]
) -> Evidence:
    """A run of which a number is another one than that of one device.

    Args:
        due: What one device has after each step.
        held: What the replicas have.
        replayed: What one device makes of the replicas' gradients.
    """
    evidence = observe(Fault(reduce=double), replicas=2, sparse=False, steps=_STEPS)

    def add(trace: Trace, numbers: Sequence[float], replicas: Sequence[int]) -> Trace:
        values = dict(trace.values)
        for step in range(INITIAL, _STEPS):
            number = 1.0 if step == INITIAL else numbers[step]
            for replica in replicas:
                key = TraceKey(
                    step=step, phase="variable", variable="rate", replica=replica
                )
                values[key] = np.float32(number)
        return replace(trace, variables=(*trace.variables, _RATE), values=values)

    replays = evidence.fed.replays
    fed = {phase: add(trace, replayed, (0, 1)) for phase, trace in replays.items()}
    return replace(
        evidence,
        observed=add(evidence.observed, held, (0, 1)),
        reference=add(evidence.reference, due, (WHOLE,)),
        twins=tuple(add(twin, due, (WHOLE,)) for twin in evidence.twins),
        fed=replace(evidence.fed, replays=fed),
    )


def find_codes(evidence: Evidence) -> list[tuple[str, str]]:
    return [(f.phase, f.variable) for f in judge(evidence).findings]


def test_what_a_wrong_number_multiplies_follows_from_it() -> None:
    evidence = add_rate((1, 0.5, 0.5), (1, 1, 1), (1, 0.5, 0.5))
    assert find_codes(evidence) == [("variable", "rate")]


@pytest.mark.parametrize(
    ("held", "replayed"),
    [((1, 1, 1), (1, 1, 1)), ((1, 1, 0.5), (1, 0.5, 0.5)), ((1, 2, 2), (1, 0.5, 0.5))],
    ids=["follows-from-the-gradient", "right-in-a-step", "another-factor"],
)
def test_a_number_that_does_not_lead_them_excuses_no_gradient(
    held: Sequence[float], replayed: Sequence[float]
) -> None:
    first = judge(add_rate((1, 0.5, 0.5), held, replayed)).findings[0]
    assert (first.code, first.phase) == ("double-reduction", "reduced_gradient")
