"""What is made of each tier of a scenario, with simulated clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from judged_runs import MEAN
from training_simulator import Fault, observe

from distbench.checking import judging
from distbench.checking.again import Way
from distbench.checking.judging import Judging
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.evidence import Evidence, Tier
from distbench.observe import Launch, Observation
from distbench.observe.corrected import put_right
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.trace.shelf import ARRAYS
from distbench.verdict import Run

SPEC = ClusterSpec.parse("mwms:2@cpu")
# On the path `none` no control is asked whose fault it is.
SCENARIO = Scenario(target="m:f", workload="linear", cluster="mwms:2", path="none")
WRONG, RIGHT = Fault(reduce=MEAN), Fault()


class Judged:
    """Judges scenarios, and keeps in their order what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.judging = Judging(
            parse_target("m:f"),
            CheckOptions(),
            ("bounded", "free"),
            cast(Launch, SimpleNamespace(log=print)),
            wait_for_earlier=lambda number: self.asked.append(f"wait for {number}"),
            observe_again=self.observe_again,
        )

    def see(self, scenario: Scenario, fault: Fault, tiers: tuple[Tier, ...]) -> Any:
        errand: Any = SimpleNamespace(
            scenario=scenario, folder=self.folder, reference=None
        )
        return Observation(
            evidence={tier: observe(fault, tier=tier, steps=2) for tier in tiers},
            tiers=tiers,
            errand=errand,
            seconds=4.0,
        )

    def observe_again(self, item: Planned) -> Observation:
        self.asked.append("again")
        return cast(Observation, self.see(item.scenario, WRONG, ("bounded",)))

    def observe_corrected(self, errand: Any, tier: Tier, *_: object) -> Evidence:
        self.asked.append(f"correct {tier}")
        right = observe(RIGHT, tier=tier, steps=2)
        return put_right(right, right.observed)

    def judge(
        self, *tiers: Tier, fault: Fault = WRONG, scenario: Scenario = SCENARIO
    ) -> list[Run]:
        """The runs of the fourth scenario of a plan."""
        item = Planned(scenario=scenario, spec=SPEC, optional=False, number=3)
        seen = self.see(scenario, fault, tiers)
        return list(self.judging.judge(item, seen, Kept(None)))


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Judged]:
    made = Judged(tmp_path)
    monkeypatch.setattr(judging, "observe_corrected", made.observe_corrected)
    return made


def test_a_cause_is_confirmed_when_those_before_are_known(judged: Judged) -> None:
    [run] = judged.judge("bounded")
    assert [f.confirmed for f in run.findings] == [True], run
    assert judged.asked == ["wait for 3", "correct bounded"]


def test_what_was_shown_before_is_not_confirmed_again(judged: Judged) -> None:
    judged.judge("bounded")
    judged.asked.clear()
    [run] = judged.judge("bounded")
    assert [f.confirmed for f in run.findings] == [None]
    assert judged.asked == ["wait for 3"]


def test_steps_that_go_on_from_their_own_state_confirm_nothing(judged: Judged) -> None:
    [run] = judged.judge("free")
    assert [f.confirmed for f in run.findings] == [None], run
    assert judged.asked == []


def test_the_time_of_a_scenario_is_shared_by_its_tiers(judged: Judged) -> None:
    runs = judged.judge("bounded", "free")
    assert [run.seconds for run in runs] == [2.0, 2.0]


@pytest.mark.parametrize("fault", [RIGHT, WRONG], ids=["right", "wrong"])
def test_what_was_judged_leaves_no_arrays(
    judged: Judged, tmp_path: Path, fault: Fault
) -> None:
    (tmp_path / ARRAYS).mkdir()
    judged.judge("bounded", fault=fault)
    assert not (tmp_path / ARRAYS).exists()


@pytest.mark.parametrize("is_told", [True, False], ids=["other", "first"])
def test_a_cause_is_known_where_the_run_that_shows_it_is_told(
    judged: Judged, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that is thrown away nobody hears what it has confirmed."""
    way = Way(
        words="in another way",
        change=lambda scenario, _: replace(scenario, given_draws=True),
        is_open=lambda first: not first.item.scenario.given_draws,
        tell=lambda first, other: other.run if is_told else None,
    )
    monkeypatch.setattr(judging, "_WAYS", (way,))
    [first] = judged.judge("bounded")
    assert [f.confirmed for f in first.findings] == [True]
    once = ["wait for 3", "correct bounded"]
    assert judged.asked == ["again", *once, *([] if is_told else once)]
    judged.asked.clear()
    monkeypatch.setattr(judging, "_WAYS", ())
    [later] = judged.judge("bounded")
    assert [f.confirmed for f in later.findings] == [None]
    assert judged.asked == once[:1]
