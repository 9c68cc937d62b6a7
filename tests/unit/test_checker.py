"""What a check tells while it runs, with runs that nobody ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from verdict_samples import make_run

from distbench.checking import check, checker
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.late import Late, TooFewStepsError
from distbench.launch.engine import Room
from distbench.launch.halt import Halt
from distbench.machine import Machine
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.target import parse_target
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


def test_traces_of_an_earlier_check_are_no_traces_of_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor where this one raises, and keeps none. What others put there stays."""
    made = make_checker(CheckOptions(keep=tmp_path), [])
    monkeypatch.setattr(made._running, "run_one", lambda *_, **__: [make_run()])
    for scenario in ("a", "b"):
        for name in ("observed", "reference"):
            (tmp_path / scenario / "bounded" / name).mkdir(parents=True)
    (tmp_path / "a" / "notes").write_text("mine")
    item = SimpleNamespace(scenario=SimpleNamespace(id="a"), number=0)
    made._tell_all([item], None)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["notes"]
    assert len([*(tmp_path / "b" / "bounded").iterdir()]) == 2


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

    def run_one(item: Planned, *_: object, **__: object) -> Iterator[Run]:
        # Of the first it turns out that it cannot have the exact tier.
        yield make_run(Status.PASS, scenario=item.scenario.id, tier="bounded")
        if item.number:
            raise KeyboardInterrupt

    monkeypatch.setattr(made._running, "run_one", run_one)
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

    def run_one(item: Planned, *_: object, **__: object) -> list[Run]:
        return [make_run(scenario=item.scenario.id)]

    monkeypatch.setattr(made._running, "run_one", run_one)
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


def test_steps_that_are_too_few_are_too_few_for_all_who_share_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for whoever has ended by then. The time that it took is everybody's."""
    made = make_checker(CheckOptions(), told := [])
    late = Late(first={"'w/slow'": 4}, steps=9)

    def run_one(item: Planned, *_: object, looks: str) -> list[Run]:
        assert looks == "heeded"
        if item.number:
            raise TooFewStepsError(late, 6.0)
        return [make_run(Status.FAIL, scenario="0")]

    def run_longer(item: Planned, *_: object, late: Late, before_s: float) -> list[Run]:
        name = f"{item.number} {late.steps}"
        return [make_run(scenario=name, seconds=before_s)]

    monkeypatch.setattr(made._running, "run_one", run_one)
    monkeypatch.setattr(made._running, "run_longer", run_longer)
    made._tell_all(plan("linear", "linear", "mlp"), None)
    assert [run.scenario for run in told] == ["0", "1 9", "2 9"]
    assert [run.seconds for run in told[1:]] == [3.0, 3.0]


def test_steps_that_were_asked_for_are_never_too_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make_checker(CheckOptions(steps=3), told := [])

    def run_one(*_: object, looks: str) -> list[Run]:
        return [make_run(message=looks)]

    monkeypatch.setattr(made._running, "run_one", run_one)
    made._tell_all(plan("linear"), None)
    assert [run.message for run in told] == ["told"]
