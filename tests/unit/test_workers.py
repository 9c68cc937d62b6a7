"""Whose steps are wrong, where workers take them in turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distbench.details import Compared
from distbench.diagnose.remarks.workers import note_worker
from distbench.evidence import Evidence
from distbench.trace import Trace


def make_evidence(taken: list[int] | None) -> Evidence:
    notes = {} if taken is None else {"taken_by": taken}
    trace = Trace(
        name="ps:3+1", replicas=1, shards=(4,), variables=(), values={}, notes=notes
    )
    return Evidence(tier="bounded", observed=trace, reference=trace)


def make_compared(*wrong: int, steps: int = 4) -> list[Compared]:
    return [
        Compared(
            step=step,
            call=0,
            phase="variable",
            variable="w",
            replica=0,
            relation="reference",
            against="one device",
            error=1.0,
            bound=0.0,
            error_over_bound=2.0,
            ratio=None,
            wrong=step in wrong,
        )
        for step in range(-1, steps)
    ]


@pytest.mark.parametrize(
    ("wrong", "worker", "steps"),
    [((1,), 1, "step 1"), ((0, 3), 0, "steps 0 and 3"), ((0,), 0, "step 0")],
    ids=["one", "both", "one-of-two"],
)
def test_a_worker_that_alone_has_wrong_steps_is_named(
    wrong: tuple[int, ...], worker: int, steps: str
) -> None:
    told = note_worker(make_evidence([0, 1, 2, 0, 1]), make_compared(*wrong, steps=5))
    assert f"all that is wrong is in {steps}, taken by worker {worker}" in told


@pytest.mark.parametrize(
    ("taken", "wrong"),
    [
        ([0, 1, 2, 0], (1, 2)),
        ([0, 1, 2, 0], (3,)),
        ([0, 0, 0, 0], (1,)),
        ([0, 1, 2, 0], ()),
        (None, (1,)),
    ],
    ids=["of-two", "from-then-on", "only-one", "none", "not-scheduled"],
)
def test_none_is_named_where_it_may_be_something_else(
    taken: list[int] | None, wrong: tuple[int, ...]
) -> None:
    assert note_worker(make_evidence(taken), make_compared(*wrong)) == ""


def test_none_is_named_where_steps_go_on_from_wrong_ones() -> None:
    evidence = replace(make_evidence([0, 1, 2, 0]), tier="free")
    assert note_worker(evidence, make_compared(1)) == ""
