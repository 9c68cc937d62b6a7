"""State in other units on a cluster: right where each run goes on from its own."""

from __future__ import annotations

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
from distbench.observe import Launch, Observation
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, Value, VariableInfo
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


def make_evidence(tier: Tier, factors: tuple[float, ...] = (0.5, 0.5, 0.5)) -> Evidence:
    """A run in which replicas hold so much of what one device holds, at each time."""

    def make(name: str, replicas: tuple[int, ...], factors: Any) -> Trace:
        values: dict[TraceKey, Value] = {
            TraceKey(step=step, phase="variable", variable="kept", replica=r): (
                np.array([1.0, -2.0 - step], np.float32) * np.float32(factor)
            )
            for step, factor in enumerate(factors, INITIAL)
            for r in replicas
        }
        return Trace(
            name=name, replicas=2, shards=(2, 2), variables=INFOS, values=values
        )

    return Evidence(
        tier=tier,
        observed=make("mwms:2", (0, 1), factors),
        reference=make("reference", (WHOLE,), (1.0,) * len(factors)),
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
    factors: tuple[float, ...] = (0.5, 0.5, 0.5),
) -> Judgement:
    def observe(*given: Any) -> Any:
        tiers = given[3]
        assert tiers == ("free",)
        return Observation(evidence={"free": make_evidence("free", factors)})

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


@pytest.mark.parametrize("begun", [0.5, 1.0], ids=["begun-so", "overwritten"])
def test_state_in_other_units_is_a_note(
    monkeypatch: pytest.MonkeyPatch, begun: float
) -> None:
    judgement = judge(monkeypatch, factors=(begun, 0.5, 0.5))
    assert (judgement.status, judgement.findings) == (Status.PASS, ())
    assert "'kept' holds 0.5 times what one device holds" in judgement.message


@pytest.mark.parametrize(
    "changes",
    [
        # What is trained goes wrong as well.
        {"free": replace(GOING_ON, compared=(*GOING_ON.compared, FOUND.compared[1]))},
        # It is no unit: another factor in each step, or one that no sum explains.
        {"factors": (0.5, 0.5, 0.4)},
        {"factors": (0.9, 0.9, 0.9)},
        # It begins with another part than it goes on with.
        {"factors": (0.3, 0.5, 0.5)},
        # Nothing follows from it, so nothing says that it is right.
        {"found": replace(FOUND, compared=(STATE_WRONG,))},
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
        {
            "found": replace(
                FOUND,
                compared=(
                    STATE_WRONG,
                    compare("reduced_gradient", "kernel", error=2e-6),
                ),
            )
        },
    ],
    ids=["trained", "drifts", "odd", "begins", "unused", "followed", "hidden"],
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


RATE = VariableInfo(path="rate", role="slot", shape=(), dtype="float32")


def make_rates(tier: Tier, factor: float = 2.0) -> Evidence:
    """A run in which the rate is so many times that of one device."""
    evidence = make_evidence(tier)
    infos = (*INFOS, RATE)

    def add(trace: Trace, replicas: tuple[int, ...], rate: float) -> Trace:
        values: dict[TraceKey, Value] = {
            TraceKey(step=step, phase="slot", variable="rate", replica=r): np.array(
                rate, np.float32
            )
            for step in range(INITIAL, 2)
            for r in replicas
        }
        return replace(trace, variables=infos, values=values)

    return replace(
        evidence,
        observed=add(evidence.observed, (0, 1), 0.05 * factor),
        reference=add(evidence.reference, (WHOLE,), 0.05),
    )


RATE_WRONG = compare("slot", "rate")
HALF = replace(compare("reduced_gradient", "kernel"), ratio=0.5)
RIGHT = compare("variable", "kernel", wrong=False)


@pytest.mark.parametrize("tier", ["exact", "bounded"])
@pytest.mark.parametrize(
    ("more", "factor", "passes"),
    [
        ((HALF, RIGHT), 2.0, True),
        # The sum is right, or another one than the rate makes up for.
        ((RIGHT, compare("variable", "kernel")), 2.0, False),
        ((replace(HALF, ratio=0.4), RIGHT), 2.0, False),
        ((HALF, replace(HALF, variable="bias", ratio=None), RIGHT), 2.0, False),
        ((HALF, RIGHT), 0.5, False),
        # A slot or a variable is wrong as well.
        ((HALF, RIGHT, compare("slot", "momentum")), 2.0, False),
        ((HALF, compare("variable", "kernel")), 2.0, False),
    ],
    ids=["undone", "rate-alone", "other", "odd", "same-way", "slot", "variable"],
)
def test_a_rate_and_a_sum_that_undo_each_other_are_a_note(
    monkeypatch: pytest.MonkeyPatch, tier: Tier, more: Any, factor: float, passes: bool
) -> None:
    finding = make_finding(phase="slot", variable="rate", variables=("rate",))
    mixed = (RATE_WRONG, HALF, compare("variable", "kernel"))
    found = Judgement(status=Status.FAIL, findings=(finding,), compared=mixed)
    free = Judgement(status=Status.FAIL, compared=(RATE_WRONG, *more))
    monkeypatch.setattr(units, "judge", lambda _: free)
    both = make_rates(tier, factor), make_rates("free", factor)
    judgement = judge_units(*both, found=found)
    assert (judgement.status is Status.PASS) is passes
    assert passes is ("undo each other" in judgement.message)
