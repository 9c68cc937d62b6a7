"""State in other units on a cluster: right where each run goes on from its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from verdict_samples import make_finding

from distbench.checking import units
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.details import Compared
from distbench.diagnose.judgement import Judgement
from distbench.errors import ClusterError
from distbench.evidence import Evidence, Tier
from distbench.fed import Fed
from distbench.observe import Launch, Observation
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, Value, VariableInfo
from distbench.trace.units import list_factors
from distbench.verdict import Status

INFOS = (
    VariableInfo(path="kernel", role="variable", shape=(2,), dtype="float32"),
    VariableInfo(
        path="kept", role="variable", shape=(2,), dtype="float32", trainable=False
    ),
)
SPEC = ClusterSpec.parse("mwms:2")
ITEM = Planned(
    scenario=Scenario(target="m:f", workload="linear", cluster="mwms:2"),
    spec=SPEC,
    optional=False,
)


def make_evidence(
    tier: Tier,
    factor: float = 0.5,
    *,
    gap: float = 1.0,
    path: str = "kept",
    raises: bool = False,
) -> Evidence:
    """A run in which replicas hold so much of what one device holds.

    One device's gradient is so far off where it starts from twice that state.
    """
    gradient = TraceKey(step=1, phase="reduced_gradient", variable="kernel")
    due = np.zeros(2, np.float32)

    def make(name: str, value: Value, notes: Mapping[str, object]) -> Trace:
        return Trace(
            name=name,
            replicas=2,
            shards=(2, 2),
            variables=INFOS,
            values={gradient: value},
            notes=notes,
        )

    unit = make("units", due + np.float32(gap), {"path": path, "factor": factor})
    undone = {"undone": [], "part": 1.0, "raises": raises}
    unit = replace(unit, notes={**unit.notes, **undone})
    return Evidence(
        tier=tier,
        observed=make("mwms:2", due, {}),
        reference=make("reference", due, {}),
        fed=Fed(units=(unit,) if tier == "free" and factor else ()),
    )


def compare(
    phase: str,
    variable: str,
    *,
    error: float = 1.0,
    wrong: bool = True,
    relation: str = "reference",
) -> Compared:
    return Compared(
        step=1,
        call=0,
        phase=phase,
        variable=variable,
        replica=0,
        relation=relation,
        against="",
        error=error,
        bound=1e-6,
        error_over_bound=error / 1e-6,
        ratio=None,
        wrong=wrong,
    )


STATE_WRONG = compare("variable", "kept")
FOUND = Judgement(
    status=Status.FAIL,
    findings=(make_finding(phase="variable", variable="kept", variables=("kept",)),),
    compared=(STATE_WRONG, compare("reduced_gradient", "kernel")),
)
GOING_ON = Judgement(
    status=Status.FAIL,
    compared=(STATE_WRONG, compare("reduced_gradient", "kernel", wrong=False)),
)


def judge(
    monkeypatch: pytest.MonkeyPatch,
    found: Judgement = FOUND,
    free: Judgement = GOING_ON,
    **of_run: Any,
) -> Judgement:
    def observe(*given: Any) -> Any:
        tiers = given[3]
        assert tiers == ("free",)
        return Observation(evidence={"free": make_evidence("free", **of_run)})

    monkeypatch.setattr(units, "observe", observe)
    monkeypatch.setattr(units, "judge", lambda _: free)
    return judge_units(make_evidence("bounded"), found=found)


def judge_units(
    *evidence: Evidence,
    found: Judgement = FOUND,
    launch: object = None,
) -> Judgement:
    """What the first of these comes to, beside the others."""
    seen = {each.tier: each for each in evidence}
    return units.judge_units(
        parse_target("m:f"), ITEM, seen, evidence[0].tier, found, cast(Launch, launch)
    )


def test_state_in_other_units_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    judgement = judge(monkeypatch)
    assert (judgement.status, judgement.findings) == (Status.PASS, ())
    assert "'kept' holds 0.5 times what one device holds" in judgement.message


@pytest.mark.parametrize(
    "changes",
    [
        # One device minds what the state is, in its own way.
        {"gap": 0.0, "raises": True},
        # What is set before a step is in other units wherever the step starts.
        {
            "found": replace(
                FOUND,
                compared=(
                    *FOUND.compared,
                    compare("variable", "kernel", relation="follows"),
                    compare("variable", "kernel", wrong=False),
                ),
            )
        },
    ],
    ids=["raises", "set-before"],
)
def test_such_state_is_known_in_other_ways(
    monkeypatch: pytest.MonkeyPatch, changes: Any
) -> None:
    assert judge(monkeypatch, **changes).status is Status.PASS


@pytest.mark.parametrize(
    "changes",
    [
        # What is trained goes wrong as well.
        {"free": replace(GOING_ON, compared=(*GOING_ON.compared, FOUND.compared[1]))},
        # It is no unit.
        {"factor": 0.0},
        # Nothing follows from it, so nothing says that it is right.
        {"gap": 0.0},
        # What follows is held against nothing but what the replicas have themselves.
        {
            "free": replace(
                GOING_ON,
                compared=(
                    STATE_WRONG,
                    compare(
                        "reduced_gradient", "kernel", wrong=False, relation="follows"
                    ),
                ),
            )
        },
        # The run that goes on could hide what follows.
        {"gap": 2e-6},
        # Replicas have a rule of their own, however small what it adds is.
        {
            "found": replace(
                FOUND,
                compared=(
                    *FOUND.compared,
                    compare("variable", "kernel", error=1e-8, relation="follows"),
                ),
            )
        },
    ],
    ids=["trained", "odd", "unused", "followed", "hidden", "other-rule"],
)
def test_what_is_wrong_with_state_stands(
    monkeypatch: pytest.MonkeyPatch, changes: Any
) -> None:
    assert judge(monkeypatch, **changes).status is Status.FAIL


def test_one_replica_has_no_other_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under parameter servers, where a sum over the replicas is a mean."""
    monkeypatch.setattr(units, "observe", None)
    evidence = make_evidence("bounded")
    alone = replace(evidence, observed=replace(evidence.observed, replicas=1))
    assert judge_units(alone) is FOUND


@pytest.mark.parametrize("tier", ["bounded", "free"])
def test_a_run_that_was_asked_for_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, tier: Tier
) -> None:
    monkeypatch.setattr(units, "observe", None)
    found, other = (FOUND, GOING_ON) if tier == "bounded" else (GOING_ON, FOUND)
    found = replace(found, findings=FOUND.findings)
    monkeypatch.setattr(units, "judge", lambda _: other)
    both = sorted(map(make_evidence, ("bounded", "free")), key=lambda e: e.tier != tier)
    assert judge_units(*both, found=found).status is Status.PASS


@pytest.mark.parametrize(
    "found",
    [
        Judgement(status=Status.PASS),
        replace(FOUND, findings=(make_finding(phase="loss"),)),
        replace(
            FOUND,
            findings=(
                make_finding(
                    phase="variable", variable="kernel", variables=("kernel",)
                ),
            ),
        ),
    ],
    ids=["right", "loss", "trained"],
)
def test_nothing_is_run_again_where_no_such_state_is_wrong_first(
    monkeypatch: pytest.MonkeyPatch, found: Judgement
) -> None:
    monkeypatch.setattr(units, "observe", None)
    assert judge_units(make_evidence("bounded"), found=found) is found


def test_a_second_run_that_breaks_takes_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise ClusterError("a task was killed")

    told: list[str] = []
    monkeypatch.setattr(units, "observe", fail)
    launch = SimpleNamespace(log=told.append)
    assert judge_units(make_evidence("bounded"), launch=launch) is FOUND
    assert "a task was killed" in told[0]


HALF = replace(compare("reduced_gradient", "kernel"), ratio=0.5)
RIGHT = compare("variable", "kernel", wrong=False)
RATE_WRONG = compare("slot", "rate")
RATE_FOUND = make_finding(phase="slot", variable="rate", variables=("rate",))


def make_units(*paths: str, undone: Sequence[str], unread: str = "") -> Evidence:
    """A free run in which so much is N times one device's, with what that undoes."""
    key = TraceKey(step=1, phase="variable", variable="kernel")
    evidence = make_evidence("free")
    due = np.zeros(2, np.float32)
    units = tuple(
        replace(
            evidence.fed.units[0],
            values={} if path == unread else {key: due + 1},
            notes={
                "path": path,
                "factor": 2.0,
                "undone": undone,
                "part": 0.5,
                "raises": False,
            },
        )
        for path in paths
    )
    reference = replace(evidence.reference, values={key: due})
    return replace(evidence, reference=reference, fed=Fed(units=units))


@pytest.mark.parametrize("tier", ["exact", "bounded"])
@pytest.mark.parametrize(
    ("more", "undone", "passes"),
    [
        ((HALF, RIGHT), ["kernel"], True),
        # One device makes something else of both, as behind a clip.
        ((HALF, RIGHT), [], False),
        # The sum is right, or another one than the rate makes up for.
        ((RIGHT, compare("variable", "kernel")), ["kernel"], False),
        ((replace(HALF, ratio=0.4), RIGHT), ["kernel"], False),
        ((HALF, replace(HALF, variable="bias"), RIGHT), ["kernel"], False),
        # A slot, a variable or a loss is wrong as well.
        ((HALF, RIGHT, compare("slot", "momentum")), ["kernel"], False),
        ((HALF, compare("variable", "kernel")), ["kernel"], False),
        ((HALF, RIGHT, compare("loss", "")), ["kernel"], False),
    ],
    ids=["undone", "clip", "alone", "other", "odd", "slot", "variable", "loss"],
)
def test_a_rate_and_a_sum_that_undo_each_other_are_a_note(
    monkeypatch: pytest.MonkeyPatch, tier: Tier, more: Any, undone: Any, passes: bool
) -> None:
    mixed = (RATE_WRONG, HALF, compare("variable", "kernel"))
    found = Judgement(status=Status.FAIL, findings=(RATE_FOUND,), compared=mixed)
    free = Judgement(status=Status.FAIL, compared=(RATE_WRONG, *more))
    monkeypatch.setattr(units, "judge", lambda _: free)
    both = make_evidence(tier), make_units("rate", undone=undone)
    judgement = judge_units(*both, found=found)
    assert (judgement.status is Status.PASS) is passes
    assert passes is ("undo each other" in judgement.message)


def test_each_part_of_the_state_is_judged_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A count that nothing reads is wrong beside a rate that is right."""
    seen_wrong = compare("variable", "seen")
    of_seen = make_finding(phase="variable", variable="seen", variables=("seen",))
    found = Judgement(
        status=Status.FAIL,
        findings=(RATE_FOUND, of_seen),
        compared=(RATE_WRONG, HALF, seen_wrong),
    )
    free = Judgement(status=Status.FAIL, compared=(RATE_WRONG, HALF, RIGHT, seen_wrong))
    monkeypatch.setattr(units, "judge", lambda _: free)
    run = make_units("rate", "seen", undone=["kernel"], unread="seen")
    judgement = judge_units(make_evidence("bounded"), run, found=found)
    assert (judgement.status, judgement.findings) == (Status.FAIL, (of_seen,))
    assert "'rate' holds 2 times" in judgement.message


@pytest.mark.parametrize(
    ("factors", "factor"),
    [
        ((0.5, 0.5, 0.5), 0.5),
        ((2.0, 2.0, 2.0), 2.0),
        # What is overwritten may begin with anything that one device begins with.
        ((1.0, 0.5, 0.5), 0.5),
        # It is no unit: another factor in each step, or one that no sum explains.
        ((0.5, 0.5, 0.4), None),
        ((0.9, 0.9, 0.9), None),
        ((0.3, 0.5, 0.5), None),
        ((1.0, 1.0, 1.0), None),
    ],
)
def test_units_are_of_all_times(
    factors: tuple[float, ...], factor: float | None
) -> None:
    def make(name: str, replicas: tuple[int, ...], factors: Any) -> Trace:
        values: dict[TraceKey, Value] = {
            TraceKey(step=step, phase="variable", variable=info.path, replica=r): (
                np.array([1.0, -2.0 - step], np.float32) * np.float32(factor)
            )
            for info in INFOS
            for step, factor in enumerate(factors, INITIAL)
            for r in replicas
        }
        return Trace(
            name=name, replicas=2, shards=(2, 2), variables=INFOS, values=values
        )

    observed = make("mwms:2", (0, 1), factors)
    found = list_factors(observed, make("reference", (WHOLE,), (1.0, 1.0, 1.0)))
    assert found == ({} if factor is None else {"kept": factor})
