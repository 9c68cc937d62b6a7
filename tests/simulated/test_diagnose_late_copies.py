"""Copies of variables that are too old, and what is computed from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import scale
from training_simulator import KERNEL, TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, INITIAL, WHOLE, Trace, TraceKey, VariableInfo

_STEPS = 4
_COPY = "copy"
_FRESH = (0, 1, 2, 3)
_EVERY_OTHER = (0, 0, 2, 2)
_ONCE = (0, 0, 0, 0)


def go_astray(value: Any) -> Any:
    """What is computed from other variables: no multiple of what is due."""
    return np.asarray(value * value.dtype.type(1.5) + value.dtype.type(0.25))


def find_start(evidence: Evidence, step: int) -> Any:
    """The kernel of one device as a step finds it."""
    key = TraceKey(step=step - 1 if step else INITIAL, phase="variable")
    return evidence.reference.values[replace(key, variable=KERNEL, replica=WHOLE)]


def add_copies(
    due: tuple[int, ...],
    seen: tuple[int, ...],
    *,
    is_late: bool = True,
    factor: float = 1.0,
    **setup: Any,
) -> Evidence:
    """A run with a copy of the kernel, which holds it as a step found it.

    Args:
        due: By step, which step's one device holds.
        seen: The same of the cluster.
        is_late: Whether losses and gradients go with the copy.
        factor: Of all losses and gradients, besides.
        setup: Of the run.
    """

    def change(value: Any, step: int) -> Any:
        is_old = is_late and step >= 0 and due[step] != seen[step]
        return scale(go_astray(value) if is_old else value, factor)

    fault = Fault(
        local=lambda gradients, r, step: {
            k: change(v, step) for k, v in gradients.items()
        }
    )
    setup = {"replicas": 3, "sparse": False, **setup}
    evidence = observe(fault, steps=_STEPS, **setup)
    right = observe(steps=_STEPS, **setup)
    losses = {
        key: change(value, key.step)
        for key, value in evidence.observed.values.items()
        if key.phase == "loss"
    }
    info = VariableInfo(
        path=_COPY,
        role="variable",
        shape=find_start(evidence, 0).shape,
        dtype="float32",
        trainable=False,
    )

    def join(trace: Trace, held: tuple[int, ...], **more: Any) -> Trace:
        places = {key.replica for key in trace.values if key.phase == "variable"}
        copies = {
            TraceKey(step=step, phase="variable", variable=_COPY, replica=r): (
                find_start(evidence, max(0, held[step] if step >= 0 else 0))
            )
            for step in range(INITIAL, _STEPS)
            for r in places
        }
        return replace(
            trace,
            variables=(*trace.variables, info),
            values={**trace.values, **copies, **more.get("values", {})},
        )

    late = {
        key: go_astray(value)
        for key, value in right.reference.values.items()
        if key.phase in COMPUTED and key.step
    }
    replays = {p: join(t, due) for p, t in evidence.fed.replays.items()}
    return replace(
        evidence,
        reference=join(evidence.reference, due),
        observed=join(evidence.observed, seen, values=losses),
        twins=tuple(join(twin, due) for twin in evidence.twins),
        earlier=(replace(evidence.reference, values=late),) if is_late else (),
        fed=replace(evidence.fed, replays=replays),
    )


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("is_late", [True, False], ids=["used", "not-used"])
def test_a_copy_that_is_too_old_is_told_alone(replicas: int, is_late: bool) -> None:
    evidence = add_copies(_FRESH, _EVERY_OTHER, is_late=is_late, replicas=replicas)
    (only,) = judge(evidence).findings
    assert (only.code, only.phase, only.step) == ("stale-read", "variable", 1)
    assert only.variables == (_COPY,)
    assert f"it holds '{KERNEL}' as that was one step before" in only.explanation


def test_a_copy_that_only_the_loss_leads_to_is_told_alone() -> None:
    """Of a copy without a replay nothing is said that the loss does not explain."""
    evidence = add_copies(_FRESH, _EVERY_OTHER)
    replays = {
        phase: replace(
            trace,
            values={k: v for k, v in trace.values.items() if k.variable != _COPY},
        )
        for phase, trace in evidence.fed.replays.items()
    }
    evidence = replace(evidence, fed=replace(evidence.fed, replays=replays))
    (only,) = judge(evidence).findings
    assert (only.code, only.phase, only.variable) == ("stale-read", "variable", _COPY)


def test_what_is_computed_late_is_one_finding_where_no_copy_is_seen() -> None:
    evidence = add_copies(_FRESH, _EVERY_OTHER)
    evidence = evidence.change_traces(
        lambda trace: replace(
            trace,
            variables=tuple(v for v in trace.variables if v.path != _COPY),
            values={k: v for k, v in trace.values.items() if k.variable != _COPY},
        )
    )
    (only,) = judge(evidence).findings
    assert (only.code, only.phase, only.step) == ("stale-read", "loss", 1)
    assert set(only.variables) == {"", *TRAINED}


def test_a_mistake_in_the_loss_is_told_beside_a_late_copy() -> None:
    evidence = add_copies(_FRESH, _EVERY_OTHER, factor=3.0)
    found = judge(evidence).findings
    assert [f.variables for f in found if f.code == "stale-read"] == [(_COPY,)]
    assert found[0].step == 0
    assert found[0].phase in COMPUTED


@pytest.mark.parametrize(
    ("due", "seen"), [(_EVERY_OTHER, _ONCE), (_ONCE, _EVERY_OTHER)]
)
def test_a_copy_that_is_held_on_one_device_too_has_another_turn(
    due: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    found = judge(add_copies(due, seen, is_late=False)).findings
    assert found
    assert all(f.code != "stale-read" for f in found)


def test_right_copies_pass() -> None:
    assert judge(add_copies(_FRESH, _FRESH)).findings == ()
    assert np.any(find_start(add_copies(_FRESH, _FRESH), 1))
