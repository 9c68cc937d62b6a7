"""A cause is confirmed once, in the first run that shows it and that is told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from verdict_samples import make_finding

from distbench.checking import judging
from distbench.checking.again import Told, Way
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence
from distbench.observe import Launch, Observation
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.trace import Trace
from distbench.verdict import Run, Status

SCENARIO = Scenario(target="m:f", workload="linear", cluster="mwms:2")
AGAIN = replace(SCENARIO, given_draws=True)
ITEM = Planned(scenario=SCENARIO, spec=ClusterSpec.parse("mwms:2"), optional=False)


def see(scenario: Scenario) -> Observation:
    trace = Trace(name="", replicas=2, shards=(4, 4), variables=(), values={})
    evidence = Evidence(tier="bounded", observed=trace, reference=trace)
    errand: Any = SimpleNamespace(scenario=scenario, folder=None, reference=None)
    return Observation(evidence={"bounded": evidence}, errand=errand)


@pytest.fixture
def corrected(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """Of which scenarios a corrected run was made."""
    made: list[Scenario] = []

    def observe_corrected(errand: Any, *_: object) -> Evidence:
        made.append(errand.scenario)
        return see(errand.scenario).evidence["bounded"]

    wrong = Judgement(status=Status.FAIL, findings=(make_finding(),))
    monkeypatch.setattr(judging, "judge", lambda _: wrong)
    monkeypatch.setattr(judging, "judge_units", lambda *given: given[4])
    monkeypatch.setattr(judging, "may_be_framework", lambda *_: False)
    monkeypatch.setattr(judging, "find_correction", lambda *_: "reduced_gradient")
    monkeypatch.setattr(judging, "observe_corrected", observe_corrected)
    monkeypatch.setattr(
        judging,
        "confirm_first",
        lambda findings, *_: (replace(findings[0], confirmed=True), *findings[1:]),
    )
    return made


def judge(told: Told | str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Judge a scenario that is run again, of which this is told by both runs."""
    way = Way(
        words="as it is",
        change=lambda scenario, _: AGAIN,
        is_open=lambda first: first.item is ITEM,
        tell=lambda first, other: other.run if told == "other" else cast(Told, told),
    )
    monkeypatch.setattr(judging, "_WAYS", (way,))
    found = judging.Judging(
        parse_target("m:f"),
        CheckOptions(),
        ("bounded",),
        cast(Launch, SimpleNamespace(log=print)),
        wait_for_earlier=lambda _: None,
        observe_again=lambda item: see(item.scenario),
    )
    monkeypatch.setattr(found._looking, "judge", lambda *given: given[2])
    [run] = found.judge(ITEM, see(SCENARIO), Kept(None))
    return run


def test_a_run_that_is_thrown_away_confirms_nothing(
    corrected: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = judge(None, monkeypatch)
    assert run.findings[0].confirmed
    assert corrected == [AGAIN, SCENARIO]


def test_a_run_that_is_told_in_the_place_of_the_first_one_does(
    corrected: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = judge("other", monkeypatch)
    assert run.findings[0].confirmed
    assert corrected == [AGAIN]
