"""What a scenario comes to whose runs in other ways are run in other ways in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from simulated_rule import Rule
from training_simulator import observe
from verdict_samples import make_finding, make_run

from distbench.checking.again import First, Judged
from distbench.checking.drawing import GIVEN
from distbench.checking.drift import STEADY
from distbench.checking.judging import Judging
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.observe import Launch, Observation
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.trace import Phase, TraceKey, Value
from distbench.verdict import Run, Status

SPEC = ClusterSpec.parse("mirrored:2@gpu")
SLOT = "momentum/dense/kernel"


def see(*, moved: float = 0.0, given: bool) -> Evidence:
    """A step that draws its numbers anew, or is given them.

    Args:
        moved: How many times as large replica 1 has a slot, less one.
        given: Whether one device repeats itself, as with numbers that it is given,
            which are other ones.
    """
    evidence = observe(replicas=2, steps=1, seed=1 + given, rule=Rule(name="momentum"))
    trace, reference = evidence.observed, evidence.reference
    values: dict[Any, Value] = dict(trace.values)
    key = TraceKey(step=0, phase="slot", variable=SLOT, replica=1)
    values[key] = np.asarray(values[key] * np.float32(1 + moved))
    notes: Mapping[str, object] = {**reference.notes, "repeats": given}
    return replace(
        evidence,
        observed=replace(trace, values=values),
        reference=replace(reference, notes=notes),
    )


def check(first: Evidence, *, steady: Evidence) -> tuple[Run, list[tuple[bool, bool]]]:
    """What a check makes of a scenario on GPUs, and the ways in which it was run."""
    ways: list[tuple[bool, bool]] = []

    def record(evidence: Evidence, *, steadily: bool) -> Observation:
        settings = {"op_determinism": steadily}
        return Observation(
            evidence={"bounded": evidence},
            tiers=("bounded",),
            environment={"settings": settings},
        )

    def observe_again(item: Planned) -> Observation:
        scenario = item.scenario
        ways.append((scenario.op_determinism, scenario.given_draws))
        seen = see(given=True) if scenario.given_draws else steady
        return record(seen, steadily=scenario.op_determinism)

    judging = Judging(
        parse_target("m:f"),
        CheckOptions(clusters=("mirrored:2",)),
        ("bounded",),
        cast(Launch, None),  # Nothing is started.
        wait_for_earlier=lambda _: None,
        observe_again=observe_again,
    )
    scenario = Scenario(target="m:f", workload="linear", cluster=str(SPEC))
    item = Planned(scenario=scenario, spec=SPEC, optional=False)
    (run,) = judging.judge(item, record(first, steadily=False), Kept(None))
    return run, ways


STEADILY, AND_GIVEN = (True, False), (True, True)
PHASE: Phase = "reduced_gradient"
ROUNDING = float(np.finfo(np.float32).eps)


def test_rounding_is_told_from_what_is_wrong_where_numbers_are_drawn() -> None:
    first = see(moved=ROUNDING, given=False)
    run, ways = check(first, steady=see(given=False))
    assert ways == [STEADILY, AND_GIVEN]
    assert run.status is Status.PASS, run
    assert [f.code for f in run.findings if f.warning] == ["nondeterministic-update"]
    # What is told of the scenario does not hang on how fast a machine is.
    assert run.setup["timeout_s"] == Scenario(target="m:f").timeout_s


def test_what_the_run_with_op_determinism_does_not_have_is_no_rounding() -> None:
    first, steady = see(moved=0.5, given=False), see(given=False)
    item = Planned(scenario=Scenario(target="m:f"), spec=SPEC, optional=False)
    again = Judged(make_run(Status.PASS), see(given=True), own=steady)
    wrong = First(item, Observation(), first, judge(first))
    right = First(item, Observation(), steady, judge(steady))
    assert STEADY.tell(wrong, again) is None
    assert STEADY.tell(right, again) == again.run


@pytest.mark.parametrize(
    ("code", "phase", "stands"),
    [
        ("unexplained", "reduced_gradient", True),
        ("scale-error", "reduced_gradient", False),
        ("unexplained", "local_gradient", False),
    ],
)
def test_what_given_numbers_leave_without_a_cause_keeps_that_of_its_own(
    code: str, phase: Phase, stands: bool
) -> None:
    evidence = see(given=False)
    found = make_finding(code="nonlinear-before-reduction", phase=PHASE, confidence=1.0)
    judged = replace(judge(evidence), status=Status.FAIL, findings=(found,))
    item = Planned(scenario=Scenario(target="m:f"), spec=SPEC, optional=False)
    other = make_finding(code=code, phase=phase)
    again = Judged(make_run(Status.FAIL, findings=(other,)), see(given=True))
    told = GIVEN.tell(First(item, Observation(), evidence, judged), again)
    assert (told is None) is stands


OWN, SHARED = "model.py:7", "model.py:9"


def tell_of_own_draws(
    *, code: str, past: list[str] | None, moved: float = 0.0, again: Status
) -> Any:
    """What a failed run comes to whose replicas draw by their numbers at one line."""
    evidence = see(moved=moved, given=True)
    seeds = {
        "reference": {OWN: ["0"], SHARED: ["3"]},
        "observed": {OWN: ["0", "1"], SHARED: ["3"]},
    }
    for name, found in seeds.items():
        trace = getattr(evidence, name)
        told = {"seeds": found} if past is None else {"seeds": found, "past_sums": past}
        notes = replace(trace, notes={**trace.notes, **told})
        evidence = replace(evidence, **{name: notes})
    finding = make_finding(code=code, phase="variable", confidence=1.0)
    judged = replace(judge(evidence), status=Status.FAIL, findings=(finding,))
    item = Planned(scenario=Scenario(target="m:f"), spec=SPEC, optional=False)
    findings = (finding,) if again is Status.FAIL else ()
    other = Judged(make_run(again, findings=findings), see(given=True))
    return GIVEN.tell(First(item, Observation(), evidence, judged), other)


@pytest.mark.parametrize("code", ["unexplained", "statistics-not-synchronized"])
@pytest.mark.parametrize("past", [[], [SHARED]])
def test_sums_of_what_replicas_draw_by_their_numbers_may_be_any(
    code: str, past: list[str]
) -> None:
    told = tell_of_own_draws(code=code, past=past, again=Status.PASS)
    assert (told.status, told.findings) == (Status.PASS, ())
    assert "each replica draws by its own number" in told.message


@pytest.mark.parametrize(
    "options",
    [
        {"past": [OWN]},
        {"past": None},
        {"past": [], "code": "nonlinear-before-reduction"},
        {"past": [], "moved": 0.5},
    ],
    ids=["past-the-sum", "not-known", "foretold", "apart"],
)
def test_what_else_is_wrong_beside_such_numbers_stands(options: Any) -> None:
    told = tell_of_own_draws(**{"code": "unexplained", "again": Status.PASS, **options})
    assert told is None


def test_what_such_numbers_do_not_hide_is_told_where_they_are_given() -> None:
    told = tell_of_own_draws(code="scale-error", past=[], again=Status.FAIL)
    assert [found.code for found in told.findings] == ["scale-error"]
