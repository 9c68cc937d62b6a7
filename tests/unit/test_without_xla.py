"""What is wrong with a step that XLA compiles is looked for without XLA."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from verdict_samples import make_finding, make_run

from distbench.checking import judging
from distbench.checking.again import First, Judged, Told
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned
from distbench.checking.uncompiled import UNCOMPILED
from distbench.cluster import ClusterSpec, Task
from distbench.diagnose.judgement import Judgement
from distbench.launch.failure import TaskFailedError
from distbench.observe import Launch, Observation
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.verdict import Run, Status

TIERS = ("bounded", "free")


def test_the_run_without_it_is_made_once_for_all_tiers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[bool] = []

    def observe_again(item: Planned) -> tuple[Run, ...]:
        made.append(item.scenario.jit)
        failed = make_run(Status.FAIL, findings=(make_finding(),))
        return tuple(replace(failed, tier=t) for t in TIERS)

    failed = SimpleNamespace(status=Status.FAIL)
    monkeypatch.setattr(judging, "judge", lambda _: failed)
    found = judging.Judging(
        parse_target("m:f"),
        CheckOptions(clusters=("one",)),
        TIERS,
        cast(Launch, None),  # Nothing is started.
        wait_for_earlier=lambda _: None,
        observe_again=observe_again,
    )
    compiled = SimpleNamespace(compiled=True)
    evidence: Any = {t: SimpleNamespace(tier=t, subject=compiled) for t in TIERS}
    scenario = Scenario(target="m:f", workload="linear", cluster="one")
    spec = ClusterSpec.parse("one")
    item = Planned(scenario=scenario, spec=spec, optional=False)
    seen = Observation(tiers=TIERS, evidence=evidence)
    assert [run.tier for run in found.judge(item, seen, Kept(None))] == list(TIERS)
    assert made == [False]


def make_first() -> First:
    """A compiled step that leaves wrong state."""
    judgement = Judgement(status=Status.FAIL, findings=(make_finding(),))
    return First(*cast(Any, (None, None, None)), judgement)


def tell(run: Run) -> Told:
    return UNCOMPILED.tell(make_first(), Judged(run))


def test_what_is_right_without_it_is_wrong_with_it_alone() -> None:
    told = tell(make_run())
    assert isinstance(told, Judgement)
    (found,) = told.findings
    assert found.code == "unexplained"
    assert found.explanation.endswith("and not where it is left out.")


@pytest.mark.parametrize(
    "status", [Status.VACUOUS, Status.UNDECIDABLE, Status.ERROR, Status.SKIPPED]
)
def test_what_proves_nothing_right_without_it_takes_nothing_away(
    status: Status,
) -> None:
    assert tell(make_run(status)) is None


def test_what_is_found_without_it_keeps_its_notes() -> None:
    told = tell(make_run(Status.FAIL, message="note: as it is"))
    assert isinstance(told, Run)
    assert told.message.startswith("note: as it is; note: found without XLA")


def test_a_run_without_it_that_the_bench_cannot_use_takes_nothing_away() -> None:
    """One task alone may be given other data: what was found before is told."""
    told: list[str] = []
    task = Task(role="worker", index=0)
    failure = TaskFailedError("no", task=task, kind="input", message="other data")
    found = judging.Judging(
        parse_target("m:f"),
        CheckOptions(clusters=("one",)),
        TIERS,
        cast(Launch, SimpleNamespace(log=told.append)),
        wait_for_earlier=lambda _: None,
        observe_again=lambda _: Observation(failure=failure, tiers=TIERS),
    )
    scenario = Scenario(target="m:f", workload="linear", cluster="one")
    spec = ClusterSpec.parse("one")
    item = Planned(scenario=scenario, spec=spec, optional=False)
    run_again = found._defer(UNCOMPILED.words, UNCOMPILED.plan(item, 1.0), ExitStack())
    assert run_again().judged == {}
    assert told[0].endswith("could not be run again without XLA: other data")
