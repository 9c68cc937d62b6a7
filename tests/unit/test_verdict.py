"""Verdicts: the contract's JSON, statuses and exit codes, and what is expected."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from input_checks import check_verdict_json

from distbench.errors import BadInputError, VerdictFailedError
from distbench.verdict import (
    Finding,
    Run,
    Status,
    Verdict,
    Worst,
    combine_statuses,
    describe_verdict,
    merge_verdicts,
)
from distbench.verdict.document import verdict_from_json, verdict_to_json

FINDING = Finding(
    code="clip-before-reduction",
    phase="reduced_gradient",
    step=0,
    variable="dense/kernel",
    replicas=(0, 1),
    ratio=1.41,
    error=0.32,
    bound=4.1e-7,
    explanation="clip after the sum",
    confidence=0.98,
)


def make_run(status: Status = Status.FAIL, *findings: Finding, **changes) -> Run:
    settings = {
        "scenario": "mlp-adam-mwms:2-default",
        "cluster": "mwms:2",
        "path": "default",
        "tier": "bounded",
        **changes,
    }
    return Run(status=status, findings=findings, **settings)


def make_verdict(*runs: Run) -> Verdict:
    return Verdict(target="a.b:c", runs=runs)


@pytest.mark.parametrize(
    "run",
    [
        make_run(Status.PASS),
        make_run(
            Status.FAIL,
            FINDING,
            replace(
                FINDING,
                ratio=None,
                error=math.nan,
                bound=math.inf,
                explanation='\x00 é\u2028"</script>',
                origin="framework",
                warning=True,
                variables=("a", ""),
            ),
            worst=Worst(phase="loss", variable="é", error_over_bound=-math.inf),
            references={"loss": "one device", "": ""},
            detail="log\n\x1b[31m",
        ),
    ],
    ids=["plain", "all-set"],
)
def test_a_verdict_comes_back_from_json(run: Run) -> None:
    check_verdict_json(
        Verdict(
            target="a.b:c",
            runs=(run,),
            environment={"x": "1"},
            seconds=2.5,
            begun=datetime(2026, 3, 1, 1, 17, 5, tzinfo=timezone.utc),
            options={"clusters": ["one"]},
        )
    )
    check_verdict_json(make_verdict())


def test_numbers_that_are_not_finite_are_words() -> None:
    run = make_run(
        Status.FAIL,
        replace(FINDING, ratio=math.inf, error=math.nan),
        worst=Worst(phase="loss", variable="", error_over_bound=-math.inf),
    )
    document = json.loads(verdict_to_json(make_verdict(run)))
    assert document["runs"][0]["findings"][0]["ratio"] == "inf"
    assert document["runs"][0]["findings"][0]["error"] == "nan"
    assert document["runs"][0]["worst"]["error_over_bound"] == "-inf"


@pytest.mark.parametrize(
    ("begun", "hour"),
    [
        (None, None),
        ("2026-03-01T01:17:05", 1),
        ("2026-03-01T01:17:05+02:00", 23),
    ],
)
def test_when_a_check_began_is_read_in_utc(begun: str | None, hour: int | None) -> None:
    document = json.loads(verdict_to_json(make_verdict(make_run())))
    document["begun"] = begun
    read = verdict_from_json(json.dumps(document)).begun
    assert (read and read.hour) == hour


def test_a_document_need_not_say_when_and_what_was_asked() -> None:
    document = json.loads(verdict_to_json(make_verdict(make_run())))
    del document["begun"], document["options"]
    assert verdict_from_json(json.dumps(document)) == make_verdict(make_run())


def test_several_checks_began_when_the_first_did() -> None:
    times = [datetime(2026, 3, day, tzinfo=timezone.utc) for day in (2, 1)]
    parts = [replace(make_verdict(), begun=time) for time in times]
    assert merge_verdicts([*parts, make_verdict()]).begun == times[1]
    assert merge_verdicts([make_verdict()]).begun is None


def test_the_document_has_the_contracts_keys() -> None:
    document = json.loads(verdict_to_json(make_verdict(make_run(Status.FAIL, FINDING))))
    assert {"schema", "target", "status", "environment", "runs"} <= set(document)
    assert document["schema"] == "distbench/verdict/1"
    assert document["status"] == "fail"
    run = {
        "scenario",
        "cluster",
        "path",
        "tier",
        "status",
        "seconds",
        "checked",
        "worst",
        "findings",
        "references",
    }
    assert run <= set(document["runs"][0])
    finding = {
        "code",
        "phase",
        "step",
        "variable",
        "replicas",
        "ratio",
        "error",
        "bound",
        "explanation",
        "confidence",
        "origin",
    }
    assert finding <= set(document["runs"][0]["findings"][0])


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"schema": "distbench/verdict/1"}',
        '{"schema": "other", "runs": []}',
        '{"schema": "distbench/verdict/1", "target": "t", "environment": {}, "runs": [1'
        "]}",
    ],
)
def test_other_text_is_no_verdict(broken: str) -> None:
    with pytest.raises(BadInputError, match="verdict"):
        verdict_from_json(broken)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "0"},
        {"step": 0.5},
        {"replicas": ["a"]},
        {"replicas": "01"},
        {"variables": [1]},
    ],
    ids=str,
)
def test_a_finding_has_numbers_where_they_are_due(changes: dict) -> None:
    """Whoever goes on from one counts with them."""
    verdict = make_verdict(make_run(Status.FAIL, FINDING))
    document = json.loads(verdict_to_json(verdict))
    document["runs"][0]["findings"][0] |= changes
    (name,) = changes
    with pytest.raises(BadInputError, match=f"'{name}' is no"):
        verdict_from_json(json.dumps(document))


def test_keys_that_a_newer_distbench_adds_are_left_out() -> None:
    verdict = make_verdict(make_run(Status.FAIL, FINDING))
    document = json.loads(verdict_to_json(verdict))
    [run] = document["runs"]
    for part in (document, run, run["findings"][0]):
        part["added"] = 1
    assert verdict_from_json(json.dumps(document)) == verdict


@pytest.mark.parametrize(
    ("statuses", "combined", "code"),
    [
        ("pass pass", "pass", 0),
        ("pass fail error", "fail", 1),
        ("pass error undecidable", "error", 3),
        ("pass vacuous", "vacuous", 4),
        ("vacuous undecidable pass", "undecidable", 4),
        ("pass refused skipped", "pass", 0),
        ("skipped refused", "vacuous", 4),
        ("", "vacuous", 4),
    ],
)
def test_the_heaviest_status_decides(statuses: str, combined: str, code: int) -> None:
    some = [Status(name) for name in statuses.split()]
    assert combine_statuses(some) is Status(combined)
    verdict = make_verdict(*(make_run(status) for status in some))
    assert verdict.exit_code == code
    assert bool(verdict) is (combined == "pass")


def test_a_failed_verdict_raises_its_diagnosis() -> None:
    verdict = make_verdict(make_run(Status.FAIL, FINDING), make_run(Status.PASS))
    with pytest.raises(VerdictFailedError, match="clip after the sum"):
        verdict.raise_for_status()


def test_a_verdict_on_nothing_says_what_was_lacking() -> None:
    skipped = make_run(Status.SKIPPED, message="need 2 GPUs, have 0")
    words = r"a.b:c: vacuous\n  .*: skipped need 2 GPUs, have 0"
    with pytest.raises(VerdictFailedError, match=words):
        make_verdict(skipped).raise_for_status()
    assert "GPUs" not in describe_verdict(make_verdict(make_run(Status.FAIL), skipped))


def test_a_passed_verdict_raises_nothing() -> None:
    make_verdict(make_run(Status.PASS), make_run(Status.SKIPPED)).raise_for_status()


def test_a_verdict_is_one_line_at_a_prompt() -> None:
    failed = make_verdict(make_run(Status.FAIL, FINDING, FINDING))
    assert repr(failed) == f"<Verdict on a.b:c, fail: {FINDING.code}>"
    assert repr(make_verdict(make_run(Status.PASS))) == "<Verdict on a.b:c, pass>"
    assert repr(Verdict(target="a\n:c", runs=())) == "<Verdict on a\\x0a:c, vacuous>"


def test_a_verdict_of_one_cluster_has_its_runs_alone() -> None:
    names = ("mwms:2", "mwms:2@gpu")
    whole = make_verdict(*(make_run(cluster=name) for name in names))
    parts = [whole.on(name) for name in names]
    assert [[run.cluster for run in part.runs] for part in parts] == [
        [n] for n in names
    ]
    assert {part.target for part in parts} == {whole.target}
