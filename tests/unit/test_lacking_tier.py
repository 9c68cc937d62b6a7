"""The exact tier is skipped in words where it was asked for and cannot be had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from distbench.checking.checker import Checker
from distbench.checking.judging import Judging
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.observe import Launch, Observation
from distbench.options import CheckOptions, list_tiers
from distbench.scenario import Scenario
from distbench.target import parse_target
from distbench.verdict import Run, Status


def _judge(seen: Observation, **given: Any) -> Sequence[Run]:
    options = CheckOptions(clusters=("ps:2+1",), **given)
    judging = Judging(
        parse_target("m:f"),
        options,
        list_tiers(options),
        cast(Launch, None),  # Nothing is started.
        wait_for_earlier=cast(Any, Checker),
        observe_again=cast(Any, Checker),
    )
    scenario = Scenario(
        target="m:f",
        workload="linear",
        cluster="ps:2+1",
        restore_from=options.restore_from or "",
        in_flight=options.in_flight,
    )
    spec = ClusterSpec.parse("ps:2+1")
    item = Planned(scenario=scenario, spec=spec, optional=False)
    return list(judging.judge(item, seen, Kept(None)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "need data and a rule on which no sum of gradients rounds"),
        ({"restore_from": "mwms:2"}, "have those that 'mwms:2' left"),
        ({"in_flight": 4}, "need a rule whose steps come to the same in every order"),
    ],
    ids=["rounds", "restored", "in-flight"],
)
def test_an_exact_tier_that_was_asked_for_is_skipped_in_words(
    given: dict[str, Any], words: str
) -> None:
    seen = Observation(tiers=("bounded",))
    (run,) = _judge(seen, tiers=("exact", "bounded"), **given)
    assert (run.tier, run.status) == ("exact", Status.SKIPPED)
    assert words in run.message


def test_nothing_is_said_of_a_tier_that_nobody_asked_for() -> None:
    assert not _judge(Observation(tiers=("bounded",)))
    assert not _judge(Observation(tiers=("bounded",)), tiers=("bounded",))


def test_nothing_is_said_of_an_exact_tier_that_was_run() -> None:
    seen = Observation(tiers=("exact", "bounded"))
    assert not _judge(seen, tiers=("exact", "bounded"))


@pytest.mark.parametrize(
    ("given", "tiers"),
    [
        ({}, ("exact", "bounded")),
        ({"tiers": ("free",)}, ("free",)),
        ({"restore_from": "mwms:2"}, ("bounded",)),
    ],
    ids=["default", "asked", "restored"],
)
def test_the_tiers_to_try(given: dict[str, Any], tiers: tuple[str, ...]) -> None:
    assert list_tiers(CheckOptions(**given)) == tiers
