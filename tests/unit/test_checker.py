"""What a check tells while it runs, with runs that nobody ran."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from verdict_samples import make_finding, make_run

from distbench.checking import checker
from distbench.launch.engine import Room
from distbench.launch.halt import Halt
from distbench.options import CheckOptions
from distbench.verdict import Run, Status


@pytest.mark.parametrize(
    ("code", "status"),
    [("missing-reduction", Status.PASS), ("nonfinite", Status.FAIL)],
)
def test_an_expected_finding_is_a_pass_in_what_is_told_meanwhile(
    monkeypatch: pytest.MonkeyPatch, code: str, status: Status
) -> None:
    told: list[Run] = []
    engine = SimpleNamespace(find_room=lambda: Room(tasks=9, gpu_tasks=0), inspect=int)
    made = checker.Checker(
        SimpleNamespace(),
        CheckOptions(expect=(code,)),
        SimpleNamespace(engine=engine, halt=Halt()),
        SimpleNamespace(start=lambda _: None, finish=told.append),
    )
    run = make_run(Status.FAIL, findings=(make_finding(),))
    monkeypatch.setattr(made, "_run_one", lambda item, one: iter([run]))
    item = SimpleNamespace(scenario=SimpleNamespace(id=run.scenario))
    assert made._tell_all([item], None) == tuple(told)
    assert [run.status for run in told] == [status]
    assert told[0].findings == run.findings
