"""`scripts/write_families.py` goes on where it stopped; no verdict goes unexplained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from imported_scripts import share_scripts
from verdict_samples import make_finding, make_run, make_verdict

from distbench.errors import BadInputError, ClusterError
from distbench.verdict import Finding, Status

NAMES = (
    "measured",
    "checked",
    "known_rows",
    "battery_cases",
    "families_cases",
    "families_page",
    "write_families",
)
CLIP = make_finding(code="clip-before-reduction", origin="framework")


scripts = share_scripts(*NAMES)


@pytest.fixture
def run(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs the script with checks that are played; returns code, page and checks."""
    script = scripts["write_families"]
    monkeypatch.setattr(script, "FIGURES", tmp_path / "families.json")
    monkeypatch.setattr(script, "PAGE", tmp_path / "families.md")

    def play(outcome: Any, *arguments: str) -> tuple[int, str, list[str]]:
        checked: list[str] = []

        def check(subject: Any, cluster: str, **options: Any) -> Any:
            checked.append(cluster)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(script.distbench, "check", check)
        code = script.main(["--only", "legacy/default/dense/*", *arguments])
        return code, (tmp_path / "families.md").read_text("utf-8"), checked

    return play


def make_verdict_of(status: Status, *findings: Finding, message: str = "") -> Any:
    return make_verdict(make_run(status, findings=findings, message=message))


def test_what_was_checked_is_not_checked_again(run: Any, tmp_path: Path) -> None:
    passed = make_verdict_of(Status.PASS)
    assert run(passed)[2] == ["mirrored:2", "mwms:2", "central:2", "ps:2+1"]
    code, page, checked = run(passed)
    assert (code, checked) == (0, [])
    assert "| default | pass /  | pass /  | pass /  | pass /  |" in page
    assert len(run(passed, "--again")[2]) == 4
    rows = json.loads((tmp_path / "families.json").read_text("utf-8"))["rows"]
    assert len(rows) == 4
    assert all(row["distbench"] for row in rows)


def test_other_versions_are_measured_anew(run: Any, tmp_path: Path) -> None:
    passed = make_verdict_of(Status.PASS)
    run(passed)
    figures = tmp_path / "families.json"
    document = json.loads(figures.read_text("utf-8"))
    document["place"]["tensorflow"] = "1.0"
    figures.write_text(json.dumps(document), "utf-8")
    _, page, checked = run(passed, "--minutes", "0")
    assert checked == []
    assert "4 of " in page  # what was measured is kept until it is anew
    _, page, checked = run(passed, "--only", "legacy/default/dense/mwms:2")
    assert checked == ["mwms:2"]
    assert "tensorflow 1.0" in page
    assert "; 1 row with tensorflow 2" in " ".join(page.split())
    assert len(run(passed)[2]) == 3


def test_what_broke_is_checked_again(run: Any) -> None:
    assert run(ClusterError("no ports"))[0] == 3
    code, _, checked = run(make_verdict_of(Status.PASS))
    assert (code, len(checked)) == (0, 4)


@pytest.mark.parametrize(
    ("outcome", "code", "cell"),
    [
        (make_verdict_of(Status.FAIL, CLIP), 0, "clip-before-reduction 2"),
        (
            make_verdict_of(Status.FAIL, make_finding(code="clip-before-reduction")),
            1,
            "clip-before-reduction ?",
        ),
        (
            make_verdict_of(
                Status.REFUSED, message="`clipnorm` is not supported with this"
            ),
            0,
            "refused 1",
        ),
        (make_verdict_of(Status.REFUSED, message="no"), 1, "refused ?"),
        (BadInputError("not on one device"), 1, "skipped ?"),
        (ClusterError("no ports"), 3, "error ?"),
    ],
    ids=["known", "subject", "refused", "unclear", "input", "broken"],
)
def test_what_is_no_pass_has_to_be_explained(
    run: Any, outcome: Any, code: int, cell: str
) -> None:
    found, page, _ = run(outcome)
    assert found == code
    assert f"| default | {cell} / " in page


def test_a_pattern_that_fits_nothing_is_bad_usage(scripts: Any) -> None:
    assert scripts["write_families"].main(["--only", "keras4/*"]) == 2


def test_cells_are_those_that_a_family_has(scripts: Any) -> None:
    cases = scripts["families_cases"].list_cases()
    assert len({case.id for case in cases}) == len(cases)
    paths = {
        family: {case.path for case in cases if case.family == family}
        for family in scripts["families_cases"].FAMILIES
    }
    assert "aggregator" in paths["legacy"] - paths["keras2"]
    assert "distributed-apply" in paths["v1"]
    assert "user" not in paths["keras3"]
    assert all(case.path == "default" for case in cases[:32])
