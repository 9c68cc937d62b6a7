"""The benchmark's table of cases, its rounds and its page; nothing is measured here."""

from __future__ import annotations

from typing import Any

import pytest
from imported_scripts import share_scripts

_NAMES = (
    "measured",
    "measure_check",
    "benchmark_program",
    "benchmark_rival",
    "benchmark_suite",
    "benchmark_gains",
    "benchmark_measures",
    "benchmark_cases",
    "benchmark_page",
    "benchmark",
)


scripts = share_scripts(*_NAMES)


def test_each_case_has_a_name_of_its_own(scripts: dict[str, Any]) -> None:
    names = [case.name for case in scripts["benchmark_cases"].CASES]
    assert len(set(names)) == len(names) > 0


def test_what_has_figures_is_left_out_unless_it_is_named(
    scripts: dict[str, Any],
) -> None:
    choose = scripts["benchmark"].choose_cases
    done = {("fresh-2",)}
    left = {case.name for case in choose([], done)}
    assert "fresh-2" not in left
    assert "fresh-4" in left
    again = [case.name for case in choose(["fresh-*"], done)]
    assert again == ["fresh-2", "fresh-4", "fresh-8"]


def test_sides_take_turns_and_the_first_round_is_left_out(
    scripts: dict[str, Any],
) -> None:
    calls: list[str] = []

    def make(name: str) -> Any:
        def side() -> float:
            calls.append(name)
            return float(len(calls))

        return side

    sides = {name: make(name) for name in "ab"}
    samples = scripts["benchmark_measures"].take_turns(sides, 2)
    assert calls == ["a", "b"] * 3
    assert samples == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_the_page_shows_the_ratio_of_each_round(scripts: dict[str, Any]) -> None:
    # The machine was ten times as busy in the second round.
    samples = {"fresh processes": [1.0, 10.0, 1.0], "other": [4.0, 40.0, 5.0]}
    rows = [{"case": "fresh-2", "distbench": "0123abc", "samples": samples}]
    page = scripts["benchmark_page"].make_page({"place": {"python": "3"}, "rows": rows})
    assert "## 2 workers" in page
    assert "distbench 0123abc" in page
    assert "| fresh processes | 1 | 1 to 10 | | |" in page
    assert "| other | 5 | 4 to 40 | 4.00 | 4.00 to 4.50 |" in page


def test_sides_of_other_numbers_have_no_quartiles(scripts: dict[str, Any]) -> None:
    samples = {"a task": [80.0, 90.0, 100.0, 90.0], "alone": [450.0]}
    rows = [{"case": "memory", "distbench": "0123abc", "samples": samples}]
    page = scripts["benchmark_page"].make_page({"place": None, "rows": rows})
    assert "| alone | 450 | 450 to 450 | 5.00 | |" in page


def test_a_verdict_is_a_scenario_that_ran_whatever_its_tiers(
    scripts: dict[str, Any],
) -> None:
    def run(scenario: str, status: str, tier: str, seed: int = 1) -> dict[str, Any]:
        setup = {"seed": seed}
        return {"scenario": scenario, "status": status, "tier": tier, "setup": setup}

    runs = [
        run("a", "pass", "exact"),
        run("a", "fail", "bounded"),
        run("a", "pass", "exact", seed=2),
        run("b", "skipped", "exact"),
        run("c", "refused", "bounded"),
    ]
    assert scripts["benchmark_suite"].count_verdicts(runs) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "fresh-2", "nonsense"], "no case fits 'nonsense'. There are"),
        (["--page", "--json", "other.json"], "--page is written from"),
    ],
    ids=["pattern", "page"],
)
def test_what_cannot_be_done_is_bad_usage(
    scripts: dict[str, Any], capsys: Any, words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        scripts["benchmark"].main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
