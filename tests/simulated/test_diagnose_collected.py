"""Gradients that are collected over steps, and not cleared once they are due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_values import add_up, add_values
from training_simulator import BIAS, KERNEL, TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo

_COLLECTED = {"kept/kernel": KERNEL, "kept/bias": BIAS}
_STEPS = 4


def sum_up(clears: Callable[[int], bool]) -> Fault:
    """Every replica applies what was summed since something cleared it."""
    kept: dict[str, Any] = {}

    def reduce(locals_: Any, step: int) -> Any:
        for path, total in add_up(locals_).items():
            is_new = clears(step) or path not in kept
            kept[path] = total if is_new else add_values([kept[path], total])
        return [dict(kept) for _ in locals_]

    return Fault(reduce=reduce)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_sum_that_is_never_cleared_is_told(sparse: bool) -> None:
    """Also of slices, of which each step has other rows."""
    evidence = observe(sum_up(lambda _: False), replicas=3, sparse=sparse, steps=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("stale-gradient", "reduced_gradient")
    assert (finding.step, finding.replicas) == (1, (0, 1, 2))
    assert set(finding.variables) == set(TRAINED)
    assert "never cleared" in finding.explanation


@pytest.mark.parametrize("shards_known", [True, False], ids=["shards", "sum"])
def test_one_replica_that_never_clears_is_named(shards_known: bool) -> None:
    kept: dict[str, Any] = {}

    def local(gradients: Any, replica: int, step: int) -> Any:
        if replica != 1:
            return gradients
        kept.update({k: v + kept.get(k, 0) for k, v in gradients.items()})
        return dict(kept)

    run = observe(
        Fault(local=local),
        replicas=3,
        sparse=False,
        steps=3,
        shards_known=shards_known,
    )
    (finding,) = judge(run).findings
    assert (finding.code, finding.phase) == ("stale-gradient", "local_gradient")
    assert (finding.step, finding.replicas) == (1, (1,))
    assert "never cleared" in finding.explanation


def test_a_sum_that_is_cleared_in_each_step_passes() -> None:
    evidence = observe(sum_up(lambda _: True), replicas=3, sparse=False, steps=3)
    assert judge(evidence).findings == ()


def add_collected(
    clears: Callable[[int], bool], *, synchronised: bool, factor: float = 1.0
) -> Evidence:
    """A right training with accumulators that one device clears in each second step.

    Args:
        clears: Whether a replica clears its own as well.
        synchronised: Whether all hold the sum, which is that of one device before each
            step; else what each has collected itself.
        factor: How many times a gradient they take.
    """
    evidence = observe(replicas=3, sparse=False, steps=_STEPS)
    observed, reference = (
        dict(evidence.observed.values),
        dict(evidence.reference.values),
    )
    infos = []

    def take(values: dict[TraceKey, Any], path: str, step: int, source: int) -> Any:
        key = replace(_name(_COLLECTED[path], step), phase="local_gradient")
        return values[replace(key, replica=source)]

    for path, owner in _COLLECTED.items():
        shape = evidence.reference.values[
            TraceKey(step=INITIAL, phase="variable", variable=owner, replica=WHOLE)
        ].shape
        infos.append(
            VariableInfo(
                path=path,
                role="variable",
                shape=shape,
                dtype="float32",
                trainable=False,
                synchronised=synchronised,
            )
        )
        for values, place, may_keep in [
            (reference, WHOLE, False),
            *((reference, r, False) for r in range(3) if not synchronised),
            *((observed, r, True) for r in range(3)),
        ]:
            held = np.zeros(shape, np.float32)
            start = replace(_name(path, INITIAL), replica=place)
            values[start] = held
            for step in range(_STEPS):
                sources = range(3) if synchronised and place != WHOLE else [place]
                taken = sum(take(values, path, step, source) for source in sources)
                if synchronised and place != WHOLE:
                    before = reference.get(
                        replace(_name(path, step - 1), replica=WHOLE)
                    )
                    held = np.zeros(shape, np.float32) if before is None else before
                held = (held + np.float32(factor) * taken).astype(np.float32)
                if step % 2 and not (may_keep and not clears(place)):
                    held = np.zeros(shape, np.float32)
                values[replace(_name(path, step), replica=place)] = held

    def change(trace: Trace, values: Any) -> Trace:
        return replace(trace, variables=(*trace.variables, *infos), values=values)

    twins = tuple(
        change(
            twin,
            {
                **twin.values,
                **{k: v for k, v in reference.items() if k.variable in _COLLECTED},
            },
        )
        for twin in evidence.twins
    )
    return replace(
        evidence,
        observed=change(evidence.observed, observed),
        reference=change(evidence.reference, reference),
        twins=twins,
    )


def _name(path: str, step: int) -> TraceKey:
    return TraceKey(step=step, phase="variable", variable=path)


@pytest.mark.parametrize("synchronised", [True, False], ids=["alike", "own"])
@pytest.mark.parametrize("factor", [1.0, 0.5], ids=["sum", "share"])
def test_what_no_replica_clears_is_told(synchronised: bool, factor: float) -> None:
    evidence = add_collected(lambda _: False, synchronised=synchronised, factor=factor)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("stale-gradient", "variable")
    assert (finding.step, finding.replicas) == (1, (0, 1, 2))
    assert set(finding.variables) == set(_COLLECTED)


def test_replicas_of_which_one_clears_are_told() -> None:
    evidence = add_collected(lambda replica: replica == 0, synchronised=False)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.replicas) == ("stale-gradient", (1, 2))


@pytest.mark.parametrize("synchronised", [True, False], ids=["alike", "own"])
def test_what_all_clear_passes(synchronised: bool) -> None:
    evidence = add_collected(lambda _: True, synchronised=synchronised)
    assert judge(evidence).findings == ()
