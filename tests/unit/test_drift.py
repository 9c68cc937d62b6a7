"""What a second run with op determinism makes of what was found on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import verdict_samples
from recorded_runs import train

from distbench.checking.drift import (
    find_roundings,
    is_settled,
    may_drift,
    tell_drift,
)
from distbench.cluster import ClusterSpec
from distbench.compare.arrays.likeness import Likeness
from distbench.compare.recorded.places import Place
from distbench.details import Compared
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence
from distbench.trace import Phase, Trace, TraceKey
from distbench.trace.numbers import densify
from distbench.verdict import Finding, Run, Status

TABLE = "table"
SLOT = TraceKey(step=1, phase="slot", variable="m/table", replica=1)


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


def see(observed: Trace, narrowest: str = "float32") -> Evidence:
    reference = replace(train(1), notes={"narrowest": narrowest})
    return Evidence(tier="bounded", observed=observed, reference=reference)


def move(phase: Phase, by: Callable[[np.ndarray], np.ndarray]) -> Trace:
    """A run whose second replica has something else in the second step."""
    trace = train(2)
    key = next(
        key
        for key, _ in trace.select(step=1, phase=phase)
        if key.replica == 1 and "kernel" in key.variable
    )
    return replace(trace, values={**trace.values, key: by(densify(trace.values[key]))})


def test_a_run_that_repeats_itself_differs_nowhere() -> None:
    assert find_roundings(see(train(2)), see(train(2))) == ()


def test_roundings_begin_where_they_are_first_seen() -> None:
    moved = move("slot", lambda values: np.nextafter(values, np.inf, dtype=np.float32))
    apart = find_roundings(see(moved), see(train(2)))
    assert apart is not None
    [place] = apart
    assert (place.key.step, place.key.phase, place.key.replica) == (1, "slot", 1)


@pytest.mark.parametrize(
    "garbage",
    [
        lambda v: v * 1.01,
        lambda v: np.roll(v, 1),
        lambda v: v * np.nan,
        lambda v: v + np.inf,
    ],
)
def test_garbage_that_came_once_is_no_rounding(
    garbage: Callable[[np.ndarray], np.ndarray],
) -> None:
    assert find_roundings(see(move("variable", garbage)), see(train(2))) is None


def test_what_one_run_alone_has_is_no_rounding() -> None:
    trace = train(2)
    values = dict(trace.values)
    del values[next(key for key in values if key.phase == "reduced_gradient")]
    assert find_roundings(see(replace(trace, values=values)), see(trace)) is None


def test_a_narrower_dtype_rounds_more() -> None:
    moved = move("reduced_gradient", lambda values: values * np.float32(1 + 2.0**-8))
    assert find_roundings(see(moved), see(train(2))) is None
    assert find_roundings(see(moved, "bfloat16"), see(train(2), "bfloat16"))


def test_what_is_left_of_a_sum_may_be_less_than_the_rounding_of_the_sum() -> None:
    def leave(left: float) -> Trace:
        trace = train(2)
        values = dict(trace.values)
        for step, last in ((0, 0.0), (1, left)):
            key = replace(SLOT, step=step, variable="SGD/dense/kernel/m")
            values[key] = np.array([1000, last, 2000], np.float32)
        return replace(trace, values=values)

    assert find_roundings(see(leave(1e-9)), see(leave(1e-3)))
    assert find_roundings(see(leave(1e-9)), see(leave(1.0))) is None


@pytest.mark.parametrize(
    ("phase", "bound", "is_small"),
    [
        ("local_gradient", 1e-6, True),
        ("reduced_gradient", 1e9, False),
        ("local_gradient", 1e9, False),
        # State is held against what follows from the gradients as well.
        ("variable", 1e9, True),
    ],
)
def test_bounds_in_which_a_gradient_may_hide_settle_nothing(
    phase: str, bound: float, is_small: bool
) -> None:
    pair = Compared(
        step=1,
        call=0,
        phase=phase,
        variable="dense/kernel",
        replica=0,
        relation="reference",
        against="",
        error=0.0,
        bound=bound,
        error_over_bound=0.0,
        ratio=1.0,
        wrong=False,
    )
    passed = Judgement(status=Status.PASS, compared=(pair,))
    assert is_settled(passed, see(train(2))) is is_small


@pytest.mark.parametrize("status", [Status.FAIL, Status.VACUOUS, Status.UNDECIDABLE])
def test_what_is_no_pass_is_not_settled(status: Status) -> None:
    assert not is_settled(Judgement(status=status), see(train(2)))


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
    findings = tuple(replace(FOUND, code=code) for code in codes)
    return verdict_samples.make_run(status, cluster="mwms:2@gpu", findings=findings)


LATER = TraceKey(step=2, phase="variable", variable=TABLE, replica=0)
APART = [
    Place(key=SLOT, likeness=Likeness(status="near", error=1e-9, ratio=1.0)),
    Place(key=SLOT.at(0), likeness=Likeness(status="near", error=2e-9, ratio=1.0)),
    Place(key=LATER, likeness=Likeness(status="near", error=5e-8, ratio=1.0)),
]


def test_what_is_gone_is_a_warning_of_where_roundings_begin() -> None:
    run = tell_drift(Status.FAIL, make_run(Status.PASS), apart=APART)
    assert run is not None
    assert run.status is Status.PASS
    [finding] = run.findings
    assert finding.code == "nondeterministic-update"
    assert finding.warning
    assert (finding.phase, finding.step, finding.replicas) == ("slot", 1, (0, 1))
    assert (finding.variables, finding.error) == (("m/table",), 2e-9)
    assert "enable_op_determinism()" in finding.explanation


def test_a_device_that_did_not_repeat_itself_leaves_no_finding() -> None:
    run = tell_drift(Status.FAIL, make_run(Status.PASS), apart=())
    assert run is not None
    assert (run.status, run.findings) == (Status.PASS, ())


def test_what_is_left_is_told_in_its_place() -> None:
    run = tell_drift(
        Status.FAIL, make_run(Status.FAIL, "missing-reduction"), apart=None
    )
    assert run is not None
    assert [finding.code for finding in run.findings] == ["missing-reduction"]


@pytest.mark.parametrize(
    ("run", "apart"),
    [
        # Garbage that came once is no order of a sum.
        (make_run(Status.PASS), None),
        # An op has no kernel that repeats its bits.
        (make_run(Status.FAIL, "raises"), APART),
        (make_run(Status.ERROR), APART),
        (make_run(Status.SKIPPED), APART),
        # Nothing is held against anything there.
        (make_run(Status.VACUOUS), APART),
        (make_run(Status.UNDECIDABLE), []),
    ],
)
def test_what_a_second_run_does_not_explain_stands(
    run: Run, apart: list[Place] | None
) -> None:
    assert tell_drift(Status.FAIL, run, apart=apart) is None


@pytest.mark.parametrize("first", [Status.PASS, Status.VACUOUS, Status.UNDECIDABLE])
def test_what_found_nothing_leaves_it_to_the_run_that_repeats_its_bits(
    first: Status,
) -> None:
    run = make_run(Status.UNDECIDABLE)
    assert tell_drift(first, run, apart=APART) == run
