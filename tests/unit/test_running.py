"""How often a scenario is run, and which runs stand, with runs that nobody ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from verdict_samples import make_finding, make_run

from distbench.checking import running
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Evidence
from distbench.late import Late
from distbench.machine import Machine
from distbench.observe import Launch, Observation, OneDevice
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.trace import Trace
from distbench.verdict import Run, Status

_ITEM = Planned(
    scenario=Scenario(target="a.b:c", workload="linear", cluster="mwms:2"),
    spec=ClusterSpec.parse("mwms:2"),
    optional=False,
)
_ONE = cast(OneDevice, None)  # Nothing is started.
_LATE = Late(
    first={"'w/slow'": 4, "what loop.py:7 decides": 6}, steps=9, ahead={"'rate'": 99}
)


def make_running(options: CheckOptions) -> running.Running:
    return running.Running(
        parse_target("a.b:c"),
        options,
        cast(Launch, None),
        Machine(cores=9, memory_bytes=1 << 40, gpus=0),
        wait_for_earlier=lambda _: None,
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [("missing-reduction", Status.PASS), ("nonfinite", Status.FAIL)],
)
def test_an_expected_finding_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, code: str, status: Status
) -> None:
    """What a run that passes has not seen is looked at, or told, all the same."""
    made = make_running(CheckOptions(expect=(code,)))
    run = make_run(Status.FAIL, findings=(make_finding(),), message="note: as it is")
    trace = Trace(name="", replicas=2, shards=(4, 4), variables=(), values={})
    evidence = Evidence(
        tier="bounded",
        observed=trace,
        reference=trace,
    )
    late = Late(ahead={"'rate'": 99})
    seen = Observation(evidence={"bounded": evidence}, late=late)
    monkeypatch.setattr(made, "_observe", lambda *_: seen)
    monkeypatch.setattr(made._judging, "judge", lambda *_: iter([run]))
    (shown,) = made.run_one(_ITEM, _ONE, Kept(None), looks="told")
    assert (shown.status, shown.findings) == (status, run.findings)
    if status is Status.PASS:
        words = "note: as it is; as expected: missing-reduction; note: 'rate' changes"
        assert shown.message.startswith(words)


def test_an_error_tells_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 3 s whenever somebody looks."""

    def observe(*_: object, **__: object) -> None:
        raise ClusterError("the deadline passed")

    clock = iter(range(0, 100, 3))
    monkeypatch.setattr(running, "observe", observe)
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=clock.__next__))
    scenario = Scenario(target="a.b:c", workload="linear", cluster="one")
    item = Planned(scenario=scenario, spec=ClusterSpec.parse("one"), optional=False)
    made = make_running(CheckOptions(tiers=("bounded",)))
    (run,) = made.run_one(item, _ONE, Kept(None))
    assert (run.status, run.seconds) == (Status.ERROR, 3)


def run_longer(
    monkeypatch: pytest.MonkeyPatch, longer: Run | BadInputError
) -> tuple[list[tuple[int, bool]], list[Run]]:
    """Which steps are taken where four are too few, and the runs that stand."""
    made, taken = make_running(CheckOptions()), []

    def run_one(
        item: Planned, one: OneDevice | None, kept: Kept, *, late: Late
    ) -> Iterator[Run]:
        assert late == Late(ahead=_LATE.ahead)
        taken.append((item.scenario.steps, one is _SHARED))
        if item.scenario.steps != _LATE.steps:
            yield make_run(seconds=1.0, message="note: as it is")
        elif isinstance(longer, Run):
            yield longer
        else:
            raise longer

    monkeypatch.setattr(made, "run_one", run_one)
    item = replace(_ITEM, scenario=replace(_ITEM.scenario, steps=4))
    runs = made.run_longer(item, _SHARED, Kept(None), _LATE, before_s=2.0)
    return taken, list(runs)


_SHARED = cast(OneDevice, SimpleNamespace())


@pytest.mark.parametrize(
    "status", [Status.PASS, Status.VACUOUS, Status.UNDECIDABLE, Status.FAIL]
)
def test_longer_runs_stand_for_those_that_would_end_early(
    monkeypatch: pytest.MonkeyPatch, status: Status
) -> None:
    longer = make_run(status, seconds=5.0, message="note: so it is")
    taken, (run,) = run_longer(monkeypatch, longer)
    assert taken == [(9, True)]
    assert (run.status, run.seconds) == (status, 7.0)
    assert run.message == (
        "note: so it is; note: 'w/slow' first changes in step 4, so 9 steps were taken "
        "in place of 4"
    )


@pytest.mark.parametrize(
    ("longer", "why", "seconds"),
    [
        (make_run(Status.ERROR, seconds=5.0, message="slow"), "error: slow", 8.0),
        (make_run(Status.SKIPPED, seconds=0.0, message="few"), "skipped: few", 3.0),
        (BadInputError("data(5) returned nothing"), "data(5) returned nothing", 3.0),
    ],
    ids=["error", "skipped", "input"],
)
def test_where_they_compare_nothing_the_short_ones_are_all_there_is(
    monkeypatch: pytest.MonkeyPatch,
    longer: Run | BadInputError,
    why: str,
    seconds: float,
) -> None:
    taken, (run,) = run_longer(monkeypatch, longer)
    assert taken == [(9, True), (4, False)]
    assert (run.status, run.seconds) == (Status.PASS, seconds)
    assert run.message == (
        "note: as it is; note: 'w/slow' first changes in step 4, after the last one of "
        "this run; 9 steps show that and what comes next (a run of that did not end: "
        f"{why})"
    )
