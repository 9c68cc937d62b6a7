"""Gradients that state keeps for a later step, which one device does not do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import add_up, scale, to_array
from training_simulator import TRAINED, Fault, observe

from distbench.checking.confirm import confirm_first
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.observe.corrected import put_right
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo

_STEPS = 3


def drop(gradients: Any, *_: Any) -> Any:
    return {path: scale(value, 0.0) for path, value in gradients.items()}


def drop_sums(locals_: Any, step: int) -> Any:
    return [drop(add_up(locals_)) for _ in locals_]


def add_kept(
    fault: Fault, *, share: float = 1.0, everywhere: bool = False, **setup: Any
) -> Evidence:
    """A run with slots that hold the sum of each step's gradients after it.

    Args:
        fault: What goes wrong besides.
        share: Which part of it they hold.
        everywhere: Whether they do on one device too, where else they stay at 0.
        setup: Of the run.
    """
    evidence = observe(fault, replicas=3, sparse=False, steps=_STEPS, **setup)
    traces = {
        "reference": evidence.reference,
        "observed": evidence.observed,
        **evidence.fed.replays,
    }
    infos = []
    added: dict[str, dict[TraceKey, Any]] = {name: {} for name in traces}
    for path in TRAINED:
        shape = find(evidence.reference, INITIAL, "variable", path, WHOLE).shape
        info = VariableInfo(
            path=f"kept/{path}", role="slot", shape=shape, dtype="float32", of=path
        )
        infos.append(info)
        none = np.zeros(shape, np.float32)
        for step in (INITIAL, *range(_STEPS)):
            total = none
            if step != INITIAL:
                found = [
                    find(evidence.observed, step, "local_gradient", path, replica)
                    for replica in range(3)
                ]
                total = np.sum(np.float32(share) * np.array(found), axis=0)
            for name, values in added.items():
                keeps = everywhere or name == "observed"
                places = [WHOLE] if name == "reference" else range(3)
                for place in places:
                    key = TraceKey(step=step, phase="slot", variable=info.path)
                    values[key.at(place)] = total if keeps else none

    def join(name: str) -> Trace:
        trace = traces[name]
        return replace(
            trace,
            variables=(*trace.variables, *infos),
            values={**trace.values, **added[name]},
        )

    replays = {phase: join(phase) for phase in evidence.fed.replays}
    return replace(
        evidence,
        reference=join("reference"),
        observed=join("observed"),
        fed=replace(evidence.fed, replays=replays),
    )


def find(trace: Trace, step: int, phase: Any, path: str, replica: int) -> np.ndarray:
    key = TraceKey(step=step, phase=phase, variable=path, replica=replica)
    return to_array(trace.values[key])


@pytest.mark.parametrize(
    ("phase", "fault"),
    [
        ("reduced_gradient", Fault(reduce=drop_sums)),
        ("applied_gradient", Fault(transform=drop)),
    ],
)
def test_a_gradient_that_a_slot_keeps_is_handed_on_late(
    phase: str, fault: Fault
) -> None:
    (finding,) = judge(add_kept(fault)).findings
    assert (finding.code, finding.phase) == ("stale-gradient", phase)
    assert (finding.step, finding.replicas) == (0, (0, 1, 2))
    assert set(finding.variables) == set(TRAINED)
    assert "'kept/" in finding.explanation


@pytest.mark.parametrize(
    "kept", [{"share": 0.5}, {"everywhere": True}], ids=["a-part", "everywhere"]
)
def test_a_gradient_that_is_lost_is_not_taken_for_a_late_one(kept: Any) -> None:
    """A slot that holds something else, or the same on one device, does not keep it."""
    first = judge(add_kept(Fault(reduce=drop_sums), **kept)).findings[0]
    assert (first.code, first.ratio) == ("scale-error", 0)


def test_slots_that_keep_right_gradients_are_told() -> None:
    (finding,) = judge(add_kept(Fault())).findings
    assert (finding.code, finding.phase) == ("scale-error", "slot")


def test_what_keeps_a_gradient_is_not_told_again_where_that_is_put_right() -> None:
    evidence = add_kept(Fault(reduce=drop_sums), tier="exact")
    right = add_kept(Fault(), tier="exact")
    corrected = put_right(right, right.observed)
    findings = judge(evidence).findings
    told = confirm_first(findings, "reduced_gradient", corrected, evidence)
    assert [finding.confirmed for finding in told] == [True]
    assert len(confirm_first(findings, "reduced_gradient", corrected)) == 2
