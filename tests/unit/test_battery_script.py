"""`scripts/battery` goes on where it stopped, and says what it cannot explain."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import verdict_samples
from imported_scripts import share_scripts

from distbench.verdict import Finding, Run, Status

ROOT = Path(__file__).parents[2]
NAMES = (
    "measured",
    "checked",
    "battery_cases",
    "known_rows",
    "battery_known",
    "battery_page",
    "battery",
)


scripts = share_scripts(*NAMES)


@pytest.fixture
def cases(scripts: Any) -> list[Any]:
    make = scripts["battery_cases"].Stock
    return [
        make(family="legacy", name="SGD", paths=("default", "user", "none")),
        make(family="legacy", name="SGD", option="clipnorm", paths=("default", "user")),
        make(family="keras3", name="SGD", paths=("default",)),
    ]


@pytest.fixture
def files(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scripts["battery"], "FIGURES", tmp_path / "stock.json")
    monkeypatch.setattr(scripts["battery"], "PAGE", tmp_path / "page.md")
    return tmp_path


def make_run(tier: str, status: Status, **changes: Any) -> Run:
    given = {"path": "default", "workload": "linear", "worst": None, **changes}
    return verdict_samples.make_run(status, tier=tier, **given)


def make_finding(**changes: Any) -> Finding:
    given = {
        "code": "clip-before-reduction",
        "variable": "kernel",
        "confidence": 1.0,
        "origin": "framework",
        **changes,
    }
    return verdict_samples.make_finding(**given)


def make_row(scripts: Any, case: Any, *runs: Run, cluster: str = "mwms:2") -> Any:
    work = scripts["battery"].Work(case=case, cluster=cluster, path="default")
    return scripts["battery"].make_row(work, "linear", runs, 0.0)


def test_defaults_come_first_and_paths_are_those_of_the_family(
    scripts: Any, cases: list[Any]
) -> None:
    planned = scripts["battery"].plan_work(cases)
    first = [(w.case.id, w.cluster, w.path) for w in planned[:4]]
    assert first == [
        (case, cluster, "default")
        for cluster in ("mirrored:2", "mwms:2")
        for case in ("legacy/SGD/default", "keras3/SGD/default")
    ]
    assert planned[-1].case.option == "clipnorm"
    by_hand = {w.case.id for w in planned if w.path == "user"}
    assert by_hand == {"legacy/SGD/default"}
    assert len(planned) == 4 * (3 + 1)


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ((Status.PASS, Status.FAIL), "fail"),
        ((Status.PASS, Status.UNDECIDABLE), "undecidable"),
        ((Status.REFUSED, Status.REFUSED), "refused"),
        ((Status.SKIPPED,), "skipped"),
        ((Status.PASS, Status.SKIPPED), "pass"),
        ((), "vacuous"),
    ],
    ids=["fail", "undecidable", "refused", "skipped", "pass", "nothing"],
)
def test_a_row_has_the_heaviest_of_its_tiers(
    scripts: Any, cases: list[Any], statuses: tuple[Status, ...], status: str
) -> None:
    tiers = ("exact", "bounded")
    runs = [make_run(t, s) for t, s in zip(tiers, statuses, strict=False)]
    assert make_row(scripts, cases[0], *runs)["status"] == status


def test_what_was_checked_is_read_back_until_a_version_changes(
    scripts: Any, cases: list[Any], files: Path
) -> None:
    battery = scripts["battery"]
    made = battery.Battery(cases=cases, left_out=())
    made.keep([make_row(scripts, cases[0], make_run("exact", Status.PASS))])
    place, name = scripts["measured"].describe_installed(), cases[0].id
    find = functools.partial(scripts["measured"].find_done, battery.FIGURES)
    assert find(place, battery.NAMES) == {(name, "mwms:2", "default", "linear")}
    place["keras"] = "0.0"
    assert find(place, battery.NAMES) == set()
    assert len(made.write()) == 1  # and the page keeps it


def test_the_page_counts_marks_and_explains(
    scripts: Any, cases: list[Any], files: Path
) -> None:
    battery = scripts["battery"]
    rows = [
        make_row(scripts, cases[0], make_run("exact", Status.PASS)),
        make_row(
            scripts,
            cases[2],
            make_run("exact", Status.FAIL, findings=(make_finding(),)),
        ),
        make_row(
            scripts,
            cases[2],
            make_run("exact", Status.FAIL, findings=(make_finding(code="nonfinite"),)),
            cluster="mirrored:2",
        ),
    ]
    left_out = scripts["battery_cases"].LeftOut(family="v1", name="X", reason="needs y")
    made = battery.Battery(cases=cases, left_out=[left_out])
    made.keep(rows)
    made.write()
    page = (files / "page.md").read_text()
    assert "| keras3 | mwms:2 | default | 1 |" in page
    assert "2. **Clips before the sum** (1)." in page
    assert "1 runs are not explained yet." in page
    assert "| SGD | default | nonfinite ? | clip-before-reduction 2 |" in page
    assert "| `tensorflow.compat.v1.train.X` | needs y |" in page


@pytest.mark.parametrize(
    "changes",
    [{"origin": "subject"}, {"code": "missing-reduction"}],
    ids=["origin", "code"],
)
def test_what_differs_from_what_is_known_is_not_explained(
    scripts: Any, cases: list[Any], changes: dict[str, str]
) -> None:
    known = scripts["battery_known"].KNOWN
    find = functools.partial(scripts["known_rows"].find_known, known=known)
    runs = [make_run("exact", Status.FAIL, findings=(make_finding(),))]
    assert find(make_row(scripts, cases[2], *runs)) is not None
    runs = [make_run("exact", Status.FAIL, findings=(make_finding(**changes),))]
    assert find(make_row(scripts, cases[2], *runs)) is None


def test_each_explanation_that_names_an_entry_has_it(scripts: Any) -> None:
    known = scripts["battery_known"].KNOWN
    assert known
    for each in known:
        if each.entry is not None:
            assert (ROOT / "docs" / "upstream" / each.entry).is_file()
