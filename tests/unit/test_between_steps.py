"""What is wrong before a step begins is told before what the step makes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from verdict_samples import make_finding

from distbench.diagnose.stages.between_steps import put_begun_first
from distbench.evidence import Evidence, Tier
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.trace.idle import find_idle

LOSS = make_finding(code="unexplained", phase="loss", step=1, variable="")
NAMED = replace(LOSS, code="loss-not-scaled")
STATE = make_finding(
    code="weight-decay-repeated",
    phase="variable",
    step=1,
    variables=("dense/kernel",),
)
HELD = STATE.variable


def make_evidence(seen: tuple[float, float], tier: Tier = "bounded") -> Evidence:
    traces = [
        Trace(
            name=name,
            replicas=2,
            shards=(5, 3),
            variables=(),
            values={},
            notes={"begun": [{HELD: (2.0, 1.0)}, {HELD: numbers}]},
        )
        for name, numbers in (("reference", (2.0, 1.0)), ("mirrored:2", seen))
    ]
    return Evidence(tier=tier, reference=traces[0], observed=traces[1])


def test_state_comes_before_a_loss_that_nothing_explains() -> None:
    (only,) = put_begun_first(make_evidence((2.0, 1.01)), [LOSS, STATE])
    assert only.code == STATE.code
    assert only.explanation.endswith("look at before_step.")


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_step_that_begins_with_nan_begins_otherwise(odd: float) -> None:
    (only,) = put_begun_first(make_evidence((odd, odd)), [LOSS, STATE])
    assert only.code == STATE.code


def test_a_loss_with_a_cause_of_its_own_is_told_as_well() -> None:
    found = put_begun_first(make_evidence((2.1, 1.0)), [NAMED, STATE])
    assert [f.code for f in found] == [STATE.code, NAMED.code]


@pytest.mark.parametrize(
    ("seen", "tier"), [((2.0, 1.0 + 1e-6), "bounded"), ((2.0, 1.5), "free")]
)
def test_rounding_and_what_a_run_goes_on_from_is_left(
    seen: tuple[float, float], tier: Tier
) -> None:
    assert put_begun_first(make_evidence(seen, tier), [LOSS, STATE]) == (LOSS, STATE)


def test_what_no_step_uses_and_nobody_changes_is_idle() -> None:
    infos = [
        VariableInfo(path=path, role="variable", shape=(), dtype="float32", between=b)
        for path, b in (("count", True), ("moved", True), ("trained", False))
    ]
    values = {
        TraceKey(step=step, phase="variable", variable=path, replica=WHOLE): np.array(
            float(step) if path == "moved" else 2.0, np.float32
        )
        for step in (INITIAL, 0, 1)
        for path in ("count", "moved", "trained")
    }
    trace = Trace(
        name="one",
        replicas=1,
        shards=(8,),
        variables=tuple(infos),
        values=values,
        notes={},
    )
    assert find_idle(trace) == {"count"}
