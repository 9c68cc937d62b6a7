"""What a second run with op determinism makes of what was found on GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distbench.checking.drift import is_rounding, may_drift, tell_drift
from distbench.cluster import ClusterSpec
from distbench.details import Compared
from distbench.trace import SparseRows, Trace, TraceKey, VariableInfo
from distbench.verdict import Finding, Run, Status

TABLE = "table"


@pytest.mark.parametrize(
    ("spec", "settings", "may"),
    [
        ("mwms:2@gpu", {"op_determinism": False}, True),
        ("mwms:2@gpu", {"op_determinism": True}, False),
        ("mwms:2@cpu", {"op_determinism": False}, False),
    ],
)
def test_only_gpus_without_op_determinism_drift(
    spec: str, settings: dict[str, bool], may: bool
) -> None:
    assert may_drift(ClusterSpec.parse(spec), {"settings": settings}) is may


def make_trace() -> Trace:
    rows = SparseRows(
        indices=np.array([7, 7]),
        values=np.array([[900.0], [-900.0]], np.float32),
        shape=(9, 1),
    )
    return Trace(
        name="mwms:2@gpu",
        replicas=2,
        shards=(1, 1),
        variables=(
            VariableInfo(path=TABLE, role="variable", shape=(9, 1), dtype="float32"),
        ),
        values={
            TraceKey(step=0, phase="local_gradient", variable=TABLE, replica=0): rows,
            TraceKey(
                step=0, phase="reduced_gradient", variable=TABLE, replica=0
            ): np.float32([1e-4]),
            TraceKey(step=0, phase="variable", variable=TABLE, replica=0): np.float32(
                [0.0, -2.0]
            ),
        },
    )


def compare(phase: str, error: float, *, wrong: bool = True) -> Compared:
    return Compared(
        step=0,
        call=0,
        phase=phase,
        variable=TABLE,
        replica=0,
        relation="replicas",
        against="",
        error=error,
        bound=0.0,
        error_over_bound=np.inf,
        ratio=1.0,
        wrong=wrong,
    )


@pytest.mark.parametrize(
    ("phase", "error", "is_small"),
    [
        ("variable", 1e-7, True),
        ("variable", 1e-2, False),
        ("variable", np.nan, False),
        ("variable", np.inf, False),
        # What a sum cancels to is small, and what it is made of is not.
        ("reduced_gradient", 1e-4, True),
        ("reduced_gradient", 1.0, False),
        ("slot", 1e-9, False),
    ],
)
def test_rounding_leaves_half_of_the_digits(
    phase: str, error: float, is_small: bool
) -> None:
    others = [compare("variable", 5.0, wrong=False), compare("variable", 1e-8)]
    assert is_rounding([*others, compare(phase, error)], make_trace()) is is_small


FOUND = Finding(
    code="slot-not-synchronized",
    phase="slot",
    step=2,
    variable=TABLE,
    replicas=(0, 1),
    ratio=1.0,
    error=7.5e-9,
    bound=0.0,
    explanation="",
    confidence=1.0,
)


def make_run(status: Status, *codes: str) -> Run:
    return Run(
        scenario="embedding-adam-mwms:2@gpu-default",
        cluster="mwms:2@gpu",
        path="default",
        workload="embedding",
        tier="bounded",
        status=status,
        seconds=2.0,
        findings=tuple(replace(FOUND, code=code) for code in codes),
    )


def test_what_is_gone_is_a_warning() -> None:
    run = tell_drift(FOUND, make_run(Status.PASS), seconds=1.0, small=True)
    assert run is not None
    assert run.status is Status.PASS
    assert run.seconds == 3.0
    [finding] = run.findings
    assert finding.code == "nondeterministic-update"
    assert finding.warning
    assert (finding.phase, finding.step, finding.replicas) == ("slot", 2, (0, 1))
    assert "enable_op_determinism()" in finding.explanation


def test_what_is_left_is_told_in_its_place() -> None:
    run = tell_drift(
        FOUND, make_run(Status.FAIL, "missing-reduction"), seconds=1.0, small=True
    )
    assert run is not None
    assert [finding.code for finding in run.findings] == ["missing-reduction"]


@pytest.mark.parametrize(
    ("run", "small"),
    [
        # Garbage that came once is no order of a sum.
        (make_run(Status.PASS), False),
        # An op has no kernel that repeats its bits.
        (make_run(Status.FAIL, "raises"), True),
        (make_run(Status.ERROR), True),
        (make_run(Status.SKIPPED), True),
    ],
)
def test_what_a_second_run_does_not_explain_stands(run: Run, small: bool) -> None:
    assert tell_drift(FOUND, run, seconds=1.0, small=small) is None
