"""`scripts/check_third_party.py` sees what differs, and names what is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from imported_scripts import import_scripts

ROOT = Path(__file__).parents[2]
FACTORIES = ROOT / "scenarios" / "third_party"


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import third_party_cases

    yield third_party_cases
    sys.modules.pop("third_party_cases")


@pytest.fixture
def page(cases: Any) -> Any:
    import third_party_page

    yield third_party_page
    sys.modules.pop("third_party_page")


def make_row(cases: Any, page: Any, *, expected: Any, status: str, **finding: Any):
    subject = cases.Subject(
        target="from_larq.py:make_bop", label="Bop", expected={"mwms:2": expected}
    )
    run = {
        "status": status,
        "workload": "linear",
        "cluster": "mwms:2",
        "tier": "exact",
        "seconds": 1.25,
        "findings": [finding] if finding else [],
    }
    return page.Row(subject=subject, expected=expected, run=run)


def make_finding(**changes: Any) -> dict[str, Any]:
    return {
        "code": "slot-from-local-gradient",
        "phase": "slot",
        "variable": "Bop/kernel/m",
        "origin": "subject",
        "replicas": [0, 1],
        **changes,
    }


def test_what_comes_out_as_expected_does_not_differ(cases: Any, page: Any) -> None:
    passing = make_row(cases, page, expected=cases.PASS, status="pass")
    failing = make_row(
        cases, page, expected=cases.FED_LOCALLY, status="fail", **make_finding()
    )
    assert not passing.differs
    assert not failing.differs


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "scale-error"},
        {"phase": "variable"},
        {"variable": "Bop/bias/m"},
        {"variable": ""},
        {"origin": "framework"},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_another_finding_differs(
    cases: Any, page: Any, changes: dict[str, Any]
) -> None:
    finding = make_finding(**changes)
    row = make_row(cases, page, expected=cases.FED_LOCALLY, status="fail", **finding)
    assert row.differs


def test_another_status_differs(cases: Any, page: Any) -> None:
    assert make_row(cases, page, expected=cases.PASS, status="undecidable").differs
    assert make_row(cases, page, expected=cases.FED_LOCALLY, status="pass").differs


def test_a_loss_has_no_variable(cases: Any, page: Any) -> None:
    finding = make_finding(code="loss-not-scaled", phase="loss")
    row = make_row(cases, page, expected=cases.NOT_SCALED, status="fail", **finding)
    assert row.differs


def test_the_page_marks_a_row_that_differs(cases: Any, page: Any) -> None:
    row = make_row(
        cases, page, expected=cases.NOT_REDUCED, status="fail", **make_finding()
    )
    outcome = page.Outcome(
        package=cases.PACKAGES[0], commands=(), versions="", quotes=(), rows=(row,)
    )
    text = page.make_page([outcome])
    assert "**1 not as expected**" in text
    assert "expected fail, missing-reduction in reduced_gradient, subject" in text
    assert "| Bop/kernel/m | 0, 1 | subject | 1.2 |" in text


def test_every_subject_is_there(cases: Any) -> None:
    for package in cases.PACKAGES:
        module = (FACTORIES / f"{package.module}.py").read_text(encoding="utf-8")
        assert f"{package.name}" in module
        assert "PIP_INSTALL = (" in module
        for subject in package.subjects:
            file, _, attribute = subject.target.partition(":")
            text = (FACTORIES / file).read_text(encoding="utf-8")
            assert re.search(rf"^(def|class) {attribute}\b", text, re.M), attribute


def test_a_part_does_not_take_the_place_of_the_page(
    page: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("measured", "check_third_party")
    with import_scripts(*names) as scripts, pytest.raises(SystemExit) as ended:
        scripts["check_third_party"].main(["--only", "larq"])
    assert ended.value.code == 2
    assert "--only needs --output" in capsys.readouterr().err


def test_every_file_of_factories_is_used(cases: Any) -> None:
    modules = {package.module for package in cases.PACKAGES}
    assert {path.stem for path in FACTORIES.glob("from_*.py")} == modules
