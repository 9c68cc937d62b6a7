"""What a check tells while it runs, with runs that nobody ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from verdict_samples import make_finding, make_run

from distbench.checking import check, checker
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.errors import ClusterError
from distbench.evidence import Evidence, Traits
from distbench.launch.engine import Room
from distbench.launch.halt import Halt
from distbench.machine import Machine
from distbench.observe import Observation
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.trace import Trace
from distbench.verdict import Run, Status, Verdict


def make_checker(
    options: CheckOptions, told: list[Run], machine: Machine | None = None
) -> checker.Checker:
    room = Room(tasks=9, gpu_tasks=0)
    engine = SimpleNamespace(find_room=lambda: room, inspect=lambda: machine)
    return checker.Checker(
        SimpleNamespace(describe=lambda: "a.b:c"),
        options,
        SimpleNamespace(engine=engine, halt=Halt()),
        SimpleNamespace(plan=lambda _: None, start=lambda _: None, finish=told.append),
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [("missing-reduction", Status.PASS), ("nonfinite", Status.FAIL)],
)
def test_an_expected_finding_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, code: str, status: Status
) -> None:
    """What a run that passes has not seen is looked at, or told, all the same."""
    told: list[Run] = []
    made = make_checker(
        CheckOptions(expect=(code,)),
        told,
        Machine(cores=9, memory_bytes=1 << 40, gpus=0),
    )
    run = make_run(Status.FAIL, findings=(make_finding(),), message="note: as it is")
    trace = Trace(name="", replicas=2, shards=(4, 4), variables=(), values={})
    evidence = Evidence(
        tier="bounded",
        observed=trace,
        reference=trace,
        subject=Traits(ahead={"'rate'": 99}),
    )
    seen = Observation(evidence={"bounded": evidence})
    monkeypatch.setattr(made, "_observe", lambda *_: seen)
    monkeypatch.setattr(made._judging, "judge", lambda *_: iter([run]))
    item = Planned(
        scenario=Scenario(target="a.b:c", workload="linear", cluster="mwms:2"),
        spec=ClusterSpec.parse("mwms:2"),
        optional=False,
    )
    made._tell_all([item], None)
    (shown,) = told
    assert (shown.status, shown.findings) == (status, run.findings)
    if status is Status.PASS:
        words = "note: as it is; as expected: missing-reduction; note: 'rate' changes"
        assert shown.message.startswith(words)


def test_traces_of_an_earlier_check_are_no_traces_of_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor where this one raises, and keeps none. What others put there stays."""
    made = make_checker(CheckOptions(keep=tmp_path), [])
    monkeypatch.setattr(made, "_run_one", lambda *_: iter([make_run()]))
    for scenario in ("a", "b"):
        for name in ("observed", "reference"):
            (tmp_path / scenario / "bounded" / name).mkdir(parents=True)
    (tmp_path / "a" / "notes").write_text("mine")
    item = SimpleNamespace(scenario=SimpleNamespace(id="a"), number=0)
    made._tell_all([item], None)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["notes"]
    assert len([*(tmp_path / "b" / "bounded").iterdir()]) == 2


def test_an_error_tells_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 3 s whenever somebody looks."""

    def observe(*_: object) -> None:
        raise ClusterError("the deadline passed")

    clock = iter(range(0, 100, 3))
    monkeypatch.setattr(checker, "observe", observe)
    monkeypatch.setattr(checker, "time", SimpleNamespace(monotonic=clock.__next__))
    scenario = Scenario(target="a.b:c", workload="linear", cluster="one")
    item = Planned(scenario=scenario, spec=ClusterSpec.parse("one"), optional=False)
    machine = Machine(gpus=0, cores=2, memory_bytes=1 << 40)
    made = make_checker(CheckOptions(tiers=("bounded",)), [], machine)
    (run,) = made._run_one(item, SimpleNamespace(), Kept(None))
    assert (run.status, run.seconds) == (Status.ERROR, 3)


def plan(*workloads: str) -> list[Planned]:
    return [
        Planned(
            scenario=Scenario(target="a.b:c", workload=workload, cluster="one"),
            spec=ClusterSpec.parse("one"),
            optional=False,
            number=number,
        )
        for number, workload in enumerate(workloads)
    ]


def test_what_was_judged_outlives_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three scenarios the second is interrupted between its tiers."""
    made = make_checker(CheckOptions(), [])

    def run_one(item: Planned, *_: object) -> Iterator[Run]:
        # Of the first it turns out that it cannot have the exact tier.
        yield make_run(Status.PASS, scenario=item.scenario.id, tier="bounded")
        if item.number:
            raise KeyboardInterrupt

    monkeypatch.setattr(made, "_run_one", run_one)
    planned = plan("linear", "linear", "mlp")
    with pytest.raises(KeyboardInterrupt):
        made._run_all(planned, None)
    verdict = made.end_early(KeyboardInterrupt())
    assert verdict is not None
    assert [(run.tier, run.status) for run in verdict.runs] == [
        ("bounded", Status.PASS),
        ("bounded", Status.PASS),
        ("exact", Status.ERROR),
        ("bounded", Status.ERROR),
    ]
    assert {run.message for run in verdict.runs[2:]} == {"Not judged: interrupted"}
    assert verdict.runs[-1].scenario == planned[-1].scenario.id
    assert verdict.runs[-1].setup["steps"] == 3
    assert {"distbench", "python", "machine"} <= verdict.environment.keys()


def test_an_interrupt_while_tasks_are_ended_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All was judged by then, and ending tasks takes a second."""
    made = make_checker(CheckOptions(), [])
    monkeypatch.setattr(
        made, "_run_one", lambda item, *_: iter([make_run(scenario=item.scenario.id)])
    )
    monkeypatch.setattr(made, "run", lambda: made._run_all(plan("linear"), None))

    @contextmanager
    def open_checker(*_: object) -> Iterator[checker.Checker]:
        yield made
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "_open_checker", open_checker)
    told: list[Verdict] = []
    with pytest.raises(KeyboardInterrupt):
        check.check_target(
            parse_target("a.b:c"), CheckOptions(), on_end_early=told.append
        )
    (verdict,) = told
    assert [run.status for run in verdict.runs] == [Status.PASS]
    assert verdict.seconds > 0


def test_before_there_is_a_plan_nothing_is_known_of_its_runs() -> None:
    assert make_checker(CheckOptions(), []).end_early(KeyboardInterrupt()) is None
