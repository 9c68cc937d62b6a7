"""State of which each replica holds its own part, and the sums that are made of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from training_simulator import KERNEL, Fault, observe

from distbench.codes import CODES
from distbench.diagnose.own_copies import tell_own_copies
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.verdict import Finding

PARTS = np.array([[1.0, 2.0, -3.0], [0.5, -1.0, 4.0]])
SUM = PARTS.sum(axis=0)
NOISE = np.array([0.3, -0.2, 0.1])
CODE = "missing-reduction"


def key(step: int, replica: int = WHOLE) -> TraceKey:
    return TraceKey(step=step, phase="variable", variable="acc", replica=replica)


def collect(parts: Any = PARTS, *, tier: str = "bounded", **changes: Any) -> Evidence:
    """Parts that replicas hold after the first step; after the second they hold 0."""
    settings = {"role": "variable", "shape": (3,), "dtype": "float64", **changes}
    info = VariableInfo(path="acc", **{"trainable": False, **settings})
    zero = np.zeros(3)

    def trace(values: dict[TraceKey, Any]) -> Trace:
        return Trace(
            name="run", replicas=2, shards=(4, 4), variables=(info,), values=values
        )

    due = {key(INITIAL): zero, key(0): SUM, key(1): zero}
    seen = {key(0, r): np.asarray(parts[r]) for r in range(2)}
    seen |= {key(1, r): zero for r in range(2)}
    evidence = observe(Fault(), steps=1)
    return replace(
        evidence, tier=cast(Any, tier), observed=trace(seen), reference=trace(due)
    )


def find(code: str, phase: str, step: int, variable: str) -> Finding:
    return Finding(
        code=code,
        phase=cast(Any, phase),
        step=step,
        variable=variable,
        replicas=(0, 1),
        ratio=None,
        error=1.0,
        bound=0.0,
        explanation=f"It is wrong. {CODES[code].fix}",
        confidence=1.0,
        variables=(variable,),
    )


def link(error: Any, step: int = 1) -> Any:
    pair = SimpleNamespace(
        key=SimpleNamespace(step=step), observed=SUM + error, expected=SUM
    )
    comparison = SimpleNamespace(phase="reduced_gradient", variable=KERNEL)
    return SimpleNamespace(pair=pair, comparison=comparison)


FIRST = find(CODE, "variable", 0, "acc")
LATER = find("nonlinear-before-reduction", "reduced_gradient", 1, KERNEL)


def test_copies_that_add_up_are_told_and_what_follows_from_them_is_not() -> None:
    (told,) = tell_own_copies(collect(), [link(SUM)], [FIRST, LATER])
    assert (told.code, told.phase) == (CODE, "variable")
    assert "VariableSynchronization.ON_READ" in told.explanation
    assert CODES[CODE].fix not in told.explanation
    assert told.explanation.startswith("It is wrong. Its copies differ")


@pytest.mark.parametrize(
    "evidence",
    [
        collect(2 * PARTS),
        collect([SUM, SUM]),
        collect(trainable=True),
        collect(synchronised=False),
        collect(role="slot"),
    ],
    ids=["too-much", "alike", "trained", "own", "slot"],
)
def test_other_state_is_told_as_before(evidence: Evidence) -> None:
    findings = [FIRST, LATER]
    assert tell_own_copies(evidence, [link(SUM)], findings) == findings


@pytest.mark.parametrize(
    ("links", "tier"),
    [
        ([link(SUM + NOISE)], "bounded"),
        ([link(SUM), link(2 * SUM)], "bounded"),
        ([link(SUM), link(NOISE)], "bounded"),
        ([link(-SUM)], "bounded"),
        ([link(SUM, step=0)], "bounded"),
        ([], "bounded"),
        ([link(SUM)], "free"),
    ],
    ids=["more", "unlike", "one-of-two", "less", "before", "unknown", "free"],
)
def test_sums_with_anything_else_wrong_are_told(links: Any, tier: str) -> None:
    told = tell_own_copies(collect(tier=tier), links, [FIRST, LATER])
    assert [finding.code for finding in told] == [CODE, LATER.code]
