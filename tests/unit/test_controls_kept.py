"""A control is run once for a scenario, a cluster and tiers, if it tells something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from distbench.checking import controls
from distbench.checking.controls import Controls
from distbench.cluster import ClusterSpec, Task
from distbench.errors import ClusterError
from distbench.evidence import Tier
from distbench.launch.failure import TaskFailedError
from distbench.observe import Launch, Observation
from distbench.scenario import Scenario
from distbench.target import TargetRef

SPEC = ClusterSpec.parse("mwms:2@cpu")
SCENARIO = Scenario(target="m:f", workload="linear", cluster="mwms:2")


class Stock:
    """Stock optimizers, of which it is kept in which clusters they were run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[str] = []
        self.shown: Observation | ClusterError = Observation()

    def observe(
        self, control: Any, scenario: Scenario, spec: ClusterSpec, *_: object
    ) -> Observation:
        self.runs.append(f"{control.describe()} {spec}")
        if isinstance(self.shown, ClusterError):
            raise self.shown
        return self.shown

    def ask(
        self,
        scenario: Scenario = SCENARIO,
        spec: ClusterSpec = SPEC,
        tiers: tuple[Tier, ...] = ("bounded",),
        content: str = "stock",
        injury: str | None = None,
    ) -> object:
        """Have a control run, as a check of its own does."""
        path = self.folder / content
        path.write_text(content)
        control = SimpleNamespace(path=str(path), describe=lambda: "m:stock")
        launch = cast(Launch, SimpleNamespace(injury=injury, log=print))
        asked = Controls(launch, tiers)
        return asked.run(scenario, spec, cast(TargetRef, control))


@pytest.fixture
def stock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stock:
    made = Stock(tmp_path)
    monkeypatch.setattr(controls, "observe", made.observe)
    monkeypatch.setattr(controls, "_KNOWN", {})
    return made


def test_a_control_is_run_once(stock: Stock) -> None:
    first = stock.ask()
    assert first is not None
    # What the subject is called is nothing that its control knows.
    assert stock.ask(replace(SCENARIO, target="m:other")) is first
    assert len(stock.runs) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"spec": ClusterSpec.parse("mwms:2@gpu")},
        {"tiers": ("exact", "bounded")},
        {"content": "another"},
        {"injury": "kill:1"},
        {"scenario": replace(SCENARIO, seed=7)},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_control_is_run_as_well(stock: Stock, other: dict[str, Any]) -> None:
    stock.ask()
    stock.ask(**other)
    assert len(stock.runs) == 2


@pytest.mark.parametrize(
    ("kind", "runs"),
    [("subject", 1), ("input", 1), ("collective", 1), ("died", 2), ("memory", 2)],
)
def test_only_what_comes_again_is_known_of_a_control_that_fails(
    stock: Stock, kind: str, runs: int
) -> None:
    """A machine may have had no memory left for it, and has for the next one."""
    task = Task(role="worker", index=0)
    failure = TaskFailedError("no", task=task, kind=kind)
    stock.shown = Observation(failure=failure)
    for _ in range(2):
        found = cast(controls.Control, stock.ask())
        assert found.failure is failure
    assert len(stock.runs) == runs


def test_a_control_of_which_nothing_was_learnt_is_run_again(stock: Stock) -> None:
    stock.shown = ClusterError("no port is left")
    assert stock.ask() is None
    stock.shown = Observation()
    assert stock.ask() is not None
    assert len(stock.runs) == 2
