"""A counter goes by what is told of an update, or is wrong besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gradient_values import add_up
from training_simulator import BIAS, KERNEL, Fault, observe
from verdict_samples import make_finding
from wrong_steps import repeat

from distbench.diagnose.judge import judge
from distbench.diagnose.stages.counters import leave_out_counted
from distbench.trace import TraceKey, Values

REPEATED, LOST = "update-repeated", "nonfinite"
COUNTED = "iterations-wrong"


def spoil(locals_: Sequence[Any], step: int) -> list[Any]:
    total = add_up(locals_)
    return [{**total, BIAS: total[BIAS] * np.float32("nan")} for _ in locals_]


def spoil_first(locals_: Sequence[Any], step: int) -> list[Any]:
    return spoil(locals_, step) if step == 0 else [add_up(locals_)] * len(locals_)


def stand_still_later(new: Any, old: Any, gradients: Any, run: Any) -> Any:
    return {**new, "iterations": old["iterations"] + (run.step == 0)}


def count(by: int, update: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """An update whose counter goes on by another number."""

    def go_on(new: Any, old: Any, gradients: Any, run: Any) -> Any:
        made = new if update is None else update(new, old, gradients, run)
        return {**made, "iterations": old["iterations"] + by}

    return go_on


@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (Fault(update=repeat(2)), [REPEATED]),
        (Fault(update=count(1, repeat(2))), [REPEATED]),
        (Fault(update=count(3, repeat(2))), [REPEATED, COUNTED]),
        (Fault(reduce=spoil), [LOST]),
        (Fault(reduce=spoil, update=count(0)), [LOST]),
        (Fault(reduce=spoil, update=count(2)), [LOST, COUNTED]),
        (Fault(reduce=spoil_first, update=stand_still_later), [LOST, COUNTED]),
    ],
    ids=["repeated", "once", "three-times", "taken", "skipped", "twice", "later"],
)
def test_a_counter_is_told_that_no_cause_leads(fault: Fault, codes: list[str]) -> None:
    assert [f.code for f in judge(observe(fault)).findings] == codes


def leave_out_standing(
    *, overflows: bool = True, own: str = "", stands: bool = False
) -> int:
    """How many counters are left of one that stands still in the second step.

    Args:
        overflows: Whether a replica's gradient of a variable does.
        own: What the counter's optimizer is given a gradient of; "" if nobody knows.
        stands: Whether that stands still as well.
    """
    evidence = observe(replicas=2, steps=2)
    key = TraceKey(step=1, phase="local_gradient", variable=BIAS, replica=1)
    counter = replace(key, phase="iterations", variable="iterations", replica=0)
    values = Values(evidence.observed.values)
    if overflows:
        values[key] = np.full_like(values[key], np.inf)
    if stands:
        trained = replace(counter, phase="variable", variable=own)
        values[trained] = evidence.get_held(trained)
    counted = {"counted": {"iterations": [own]}} if own else {}
    evidence = replace(
        evidence,
        observed=replace(evidence.observed, values=values),
        reference=replace(
            evidence.reference, notes={**evidence.reference.notes, **counted}
        ),
    )
    base = np.asarray(evidence.get_held(counter))
    link = SimpleNamespace(
        comparison=SimpleNamespace(key=counter),
        pair=SimpleNamespace(observed=base, expected=base + 1),
    )
    told = make_finding(code=LOST, phase="variable", variables=(BIAS,), step=0)
    return len(leave_out_counted(evidence, [told], [link]))


@pytest.mark.parametrize(("overflows", "left"), [(True, 0), (False, 1)])
def test_a_step_that_all_leave_out_is_told_by_own_gradients(overflows, left) -> None:
    """No sum is seen, and what trains is finite again after the first step."""
    assert leave_out_standing(overflows=overflows) == left


@pytest.mark.parametrize(
    ("own", "stands", "left"), [(BIAS, False, 0), (KERNEL, False, 1), (KERNEL, True, 0)]
)
def test_another_optimizers_overflow_is_no_excuse(own, stands, left) -> None:
    """But where all that its own trains stands still, the step was left out for all."""
    assert leave_out_standing(own=own, stands=stands) == left
