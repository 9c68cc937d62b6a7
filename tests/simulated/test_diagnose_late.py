"""Losses and gradients that were computed from earlier variables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import scale
from training_simulator import Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey


def make_late(evidence: Evidence, factors: tuple[float, ...]) -> Trace:
    """What one device would give some steps late: here its own, scaled by step."""
    values = {
        key.at(WHOLE): scale(value, factors[key.step])
        for key, value in evidence.observed.values.items()
        if key.phase in COMPUTED and factors[key.step]
    }
    return replace(evidence.reference, values=values)


def observe_scaled(factors: tuple[float, ...]) -> Evidence:
    """A cluster of one replica whose loss and gradient differ in each step."""

    def change(gradients, replica, step):
        return {k: scale(v, factors[step]) for k, v in gradients.items()}

    evidence = observe(Fault(local=change), replicas=1, steps=3, shards_known=False)
    losses = {
        key: value * value.dtype.type(factors[key.step])
        for key, value in evidence.observed.values.items()
        if key.phase == "loss"
    }
    values = {**evidence.observed.values, **losses}
    return replace(evidence, observed=replace(evidence.observed, values=values))


@pytest.mark.parametrize(
    ("factors", "late", "words"),
    [
        ((1, 1.5, 1), [(0, 1.5, 0.25)], "of one step before"),
        ((1, 1.5, 0.75), [(0, 1.5, 2.5), (0, 0, 0.75)], "of up to 2 steps before"),
    ],
    ids=["every-other-step", "once-for-all"],
)
def test_a_late_read_is_told_from_a_factor(
    factors: tuple, late: list[tuple], words: str
) -> None:
    evidence = observe_scaled(factors)
    correct = observe(replicas=1, steps=3, shards_known=False)
    earlier = tuple(make_late(correct, by_step) for by_step in late)
    first = judge(replace(evidence, earlier=earlier)).findings[0]
    assert (first.code, first.phase, first.step) == ("stale-read", "loss", 1)
    assert words in first.explanation
    assert first.confidence > 0.99
    assert judge(evidence).findings[0].code != "stale-read"


def test_a_factor_is_not_taken_for_a_late_read() -> None:
    evidence = observe_scaled((1, 1.5, 1.5))
    correct = observe(replicas=1, steps=3, shards_known=False)
    earlier = (make_late(correct, (0, 0.5, 0.25)),)
    first = judge(replace(evidence, earlier=earlier)).findings[0]
    assert first.code != "stale-read"
    assert np.isclose(first.ratio or 0, 1.5)


def test_a_right_run_needs_no_earlier_steps() -> None:
    correct = observe(replicas=1, steps=3, shards_known=False)
    earlier = (make_late(correct, (0, 0.5, 0.25)),)
    assert judge(replace(correct, earlier=earlier)).findings == ()
    key = TraceKey(step=1, phase="loss", replica=WHOLE)
    assert earlier[0].get(key) is not None
