"""State that is wrong as a step begins, and what the step makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from led_runs import ADDED, BY_SIZE, make_run
from training_simulator import KERNEL, Fault

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, Trace, TraceKey, VariableInfo

_COPY = "copy"


def go_astray(gradients: Any, replica: int, step: int) -> Any:
    """What is computed from other variables: no multiple of what is due."""
    del replica, step
    return {
        path: np.asarray(value * value.dtype.type(1.5) + value.dtype.type(0.25))
        for path, value in gradients.items()
    }


def add_copies(evidence: Evidence, factor: float) -> Evidence:
    """With a copy of the kernel, made before each step: on the cluster times that."""
    steps = evidence.observed.steps
    due = {
        step: evidence.reference.values[
            TraceKey(step=max(step - 1, INITIAL), phase="variable", variable=KERNEL)
        ]
        for step in range(INITIAL, steps)
    }
    info = VariableInfo(
        path=_COPY,
        role="variable",
        shape=due[0].shape,
        dtype="float32",
        trainable=False,
        between=True,
    )

    def join(trace: Trace, times: float = 1.0) -> Trace:
        places = {key.replica for key in trace.values if key.phase == "variable"}
        copies = {
            TraceKey(step=step, phase="variable", variable=_COPY, replica=r): (
                value * np.float32(1.0 if step == INITIAL else times)
            )
            for step, value in due.items()
            for r in places
        }
        sizes = [times * float(np.linalg.norm(due[s])) for s in range(steps)]
        return replace(
            trace,
            variables=(*trace.variables, info),
            values={**trace.values, **copies},
            notes={**trace.notes, "begun": [{_COPY: (n, n)} for n in sizes]},
        )

    replays = {phase: join(t) for phase, t in evidence.fed.replays.items()}
    return replace(
        evidence,
        reference=join(evidence.reference),
        observed=join(evidence.observed, factor),
        twins=tuple(map(join, evidence.twins)),
        fed=replace(evidence.fed, replays=replays),
    )


@pytest.mark.parametrize("weights", [BY_SIZE, ADDED], ids=["right", "led"])
def test_a_wrong_copy_is_told_once_and_before_what_is_made_of_it(
    weights: tuple[float, ...],
) -> None:
    fault = Fault(local=go_astray)
    evidence = add_copies(make_run(weights, known=True, fault=fault, sparse=False), 3.0)
    (only,) = judge(evidence).findings
    assert (only.code, only.phase, only.step) == ("scale-error", "variable", 0)
    assert only.variables == (_COPY,)
    assert only.ratio == pytest.approx(3.0)
    assert only.explanation.endswith("look at before_step.")


def test_a_statistic_is_told_where_its_step_begins_as_on_one_device() -> None:
    evidence = add_copies(make_run(ADDED, known=True, sparse=False), 1.0)
    (only,) = judge(evidence).findings
    assert (only.code, only.variables) == ("statistics-not-synchronized", ("moving",))
