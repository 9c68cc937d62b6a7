"""State of which each replica holds its own part, and the sums that are made of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from training_simulator import KERNEL, Fault, observe

from distbench.codes import CODES
from distbench.diagnose.stages.own_copies import tell_own_copies
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.verdict import Finding

PARTS = np.array([[1.0, 2.0, -3.0], [0.5, -1.0, 4.0]])
SUM = PARTS.sum(axis=0)
NOISE = np.array([0.3, -0.2, 0.1])
CODE = "missing-reduction"


def collect(
    parts: Any = PARTS,
    later: Any = (0.0, 0.0),
    due: Any = 0.0,
    *,
    tier: str = "bounded",
    **changes: Any,
) -> Evidence:
    """Parts that replicas hold after the first step, and then after the second one.

    One device holds their sum, and then what is `due`: nothing, like all replicas,
    unless another number is given.
    """
    settings = {"role": "variable", "shape": (3,), "dtype": "float64", **changes}
    info = VariableInfo(path="acc", **{"trainable": False, **settings})

    def key(step: int, replica: int = WHOLE) -> TraceKey:
        return TraceKey(step=step, phase=info.role, variable="acc", replica=replica)

    def trace(values: dict[TraceKey, Any]) -> Trace:
        return Trace(
            name="run", replicas=2, shards=(4, 4), variables=(info,), values=values
        )

    whole = {key(INITIAL): np.zeros(3), key(0): SUM, key(1): np.full(3, due)}
    seen = {key(0, r): np.asarray(parts[r]) for r in range(2)}
    seen |= {key(1, r): np.full(3, later[r]) for r in range(2)}
    evidence = observe(Fault(), steps=1)
    return replace(
        evidence, tier=cast(Any, tier), observed=trace(seen), reference=trace(whole)
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


OTHER = PARTS[::-1] + 0.5
SLOT = find("slot-from-local-gradient", "slot", 0, "acc")


def average(kept: float = 0.9, *, spoilt: float = 0.0) -> Evidence:
    """A slot of parts, of which the second step keeps a share and adds own numbers."""
    later = kept * SUM + 0.1 * OTHER + spoilt * NOISE
    due = kept * SUM + 0.1 * OTHER.sum(axis=0)
    return collect(PARTS, later, due, role="slot")


@pytest.mark.parametrize("kept", [0.9, 0.25, 1.0, 0.0])
def test_an_average_of_parts_that_is_handed_on_is_told_as_parts(kept: float) -> None:
    (told,) = tell_own_copies(average(kept), [link(0.9 * SUM)], [SLOT, LATER])
    assert (told.code, told.phase) == (SLOT.code, "slot")
    assert "VariableSynchronization.ON_READ" in told.explanation


@pytest.mark.parametrize(
    ("evidence", "error"),
    [
        (average(spoilt=1.0), 0.9 * SUM),
        (average(-0.5), 0.9 * SUM),
        (average(1.5), 0.9 * SUM),
        (average(), NOISE),
    ],
    ids=["no-parts", "turned", "grows", "other-sums"],
)
def test_what_makes_no_parts_of_a_slot_leaves_all_told(
    evidence: Evidence, error: Any
) -> None:
    findings = [SLOT, LATER]
    assert tell_own_copies(evidence, [link(error)], findings) == findings


def test_a_slot_that_nobody_sums_is_for_the_update_rule_to_mend() -> None:
    assert tell_own_copies(average(), [], [SLOT]) == [SLOT]
