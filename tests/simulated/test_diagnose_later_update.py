"""Updates one after the other in a step: what the first leads to, what is its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_changes import LATER, update_in_turn
from faults_by_variable import Combine, clip, double, go_on_alone, lose_last, make_fault
from gradient_values import add_up, scale
from training_simulator import BIAS, HEAD, KERNEL, TABLE, Fault, observe

from distbench.diagnose.judge import judge


def make_later_ones_follow(gradients: Any, replica: int, step: int) -> Any:
    """What is computed after a wrong update: no multiple of what is right."""
    changed = dict(gradients)
    for place, path in enumerate(LATER):
        value = changed[path]
        numbers = value.values if path == TABLE else value
        bent = numbers + (0.3 + place) * numbers**2 + 0.1
        changed[path] = replace(value, values=bent) if path == TABLE else bent
    return changed


@pytest.mark.parametrize(
    ("way", "code"),
    [(clip, "clip-before-reduction"), (go_on_alone, "variable-not-reduced")],
)
def test_what_is_computed_after_a_wrong_update_follows_from_it(
    way: Combine, code: str
) -> None:
    fault = make_fault(
        {KERNEL: way, BIAS: way},
        local=make_later_ones_follow,
        loss=lambda loss, r: loss + loss.dtype.type(0.1 + r),
    )
    evidence = update_in_turn(observe(fault, replicas=2, shards_known=False))
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == (code, "reduced_gradient")
    assert set(finding.variables) == {KERNEL, BIAS}


def test_a_norm_over_the_variables_of_one_update_is_told() -> None:
    limit = 0.1

    def reduce(locals_: Sequence[Any], step: int) -> list[Any]:
        clipped = []
        for gradients in locals_:
            norm = np.sqrt(sum(np.sum(gradients[p] ** 2) for p in (KERNEL, BIAS)))
            cut = {p: scale(gradients[p], limit / norm) for p in (KERNEL, BIAS)}
            clipped.append({**gradients, **cut})
        return [add_up(clipped) for _ in locals_]

    evidence = update_in_turn(observe(Fault(reduce=reduce), replicas=2))
    (finding,) = judge(evidence).findings
    assert finding.code == "clip-before-reduction"
    assert f"the global norm of each replica's gradients to {limit}" in (
        finding.explanation
    )
    assert finding.confidence > 0.999


def test_a_later_update_has_a_cause_of_its_own() -> None:
    fault = make_fault({KERNEL: lose_last, TABLE: double, HEAD: double})
    findings = judge(update_in_turn(observe(fault, replicas=2))).findings
    assert {f.variables: f.code for f in findings} == {
        (KERNEL,): "replica-dropped",
        (TABLE, HEAD): "double-reduction",
    }


def test_a_later_update_alone_is_found_where_nothing_explains_it() -> None:
    evidence = observe(
        Fault(local=make_later_ones_follow), replicas=2, shards_known=False
    )
    (finding,) = judge(update_in_turn(evidence)).findings
    assert finding.code == "unexplained"
    assert set(finding.variables) >= set(LATER)


def leave_rows(new: Any, old: Any, gradients: Any, run: Any) -> Any:
    """Nobody updates the first rows of the table."""
    table = np.array(new[TABLE])
    table[:2] = old[TABLE][:2]
    return {**new, TABLE: table}


def draw_in_rule(new: Any, old: Any, gradients: Any, run: Any) -> Any:
    rng = np.random.default_rng([run.step, run.replica])
    noise = rng.normal(size=new[HEAD].shape).astype(new[HEAD].dtype)
    return {**new, HEAD: new[HEAD] + noise}


@pytest.mark.parametrize("in_turn", [False, True], ids=["at-once", "in-turn"])
@pytest.mark.parametrize(
    ("update", "path", "code"),
    [
        (leave_rows, TABLE, "sparse-rows"),
        (draw_in_rule, HEAD, "replicas-diverged"),
    ],
    ids=["rows", "noise"],
)
def test_what_a_later_update_leaves_is_told_by_its_gradients(
    update: Any, path: str, code: str, in_turn: bool
) -> None:
    evidence = observe(Fault(update=update), replicas=2, steps=3)
    if in_turn:
        evidence = update_in_turn(evidence)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.variables) == (code, (path,)), finding.explanation
