"""Verdicts as JUnit files, which other tools read."""

from __future__ import annotations

from datetime import datetime, timezone
from xml.etree import ElementTree

import pytest
from input_checks import check_junit
from verdict_samples import FAILED, TEXTS, make_run, make_verdict

from distbench.report.junit import verdict_to_junit
from distbench.verdict import Status


def test_junit_counts_and_explains() -> None:
    suite = ElementTree.fromstring(verdict_to_junit(FAILED)).find("testsuite")
    assert suite is not None
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "2",
        "errors": "0",
        "skipped": "1",
    }
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "nobody sums" in (failure.text or "")


@pytest.mark.parametrize(
    ("status", "tag"),
    [
        ("pass", None),
        ("fail", "failure"),
        ("error", "error"),
        ("undecidable", "error"),
        ("vacuous", "error"),
        ("refused", "skipped"),
        ("skipped", "skipped"),
    ],
)
def test_junit_has_a_word_for_each_status(status: str, tag: str | None) -> None:
    document = verdict_to_junit(make_verdict(make_run(Status(status))))
    case = ElementTree.fromstring(document).find("testsuite/testcase")
    assert case is not None
    assert [child.tag for child in case] == ([tag] if tag else [])


def test_junit_says_when_and_where() -> None:
    begun = datetime(2026, 3, 1, 1, 17, 5, tzinfo=timezone.utc)
    known = {"distbench": "0.1", "machine": {"cores": 2, "gpus": ["A", "B"]}}
    verdict = make_verdict(make_run(), begun=begun, environment=known)
    suite = ElementTree.fromstring(verdict_to_junit(verdict)).find("testsuite")
    assert suite is not None
    assert suite.get("timestamp") == "2026-03-01T01:17:05"
    properties = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert properties == {
        "distbench": "0.1",
        "machine.cores": "2",
        "machine.gpus": "A, B",
    }
    assert "timestamp" not in verdict_to_junit(make_verdict(make_run()))


@pytest.mark.parametrize("text", TEXTS)
def test_junit_is_well_formed_whatever_the_names(text: str) -> None:
    check_junit(text)
