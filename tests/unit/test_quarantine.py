"""Known failures are shown and do not count, for as long as the list says."""

from __future__ import annotations

import datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from verdict_samples import make_finding, make_run, make_verdict

from distbench.errors import BadInputError
from distbench.history.quarantine import Entry, apply_quarantine, read_quarantine
from distbench.options import CheckOptions
from distbench.report.junit import verdict_to_junit
from distbench.report.page import verdict_to_html
from distbench.report.table import make_console, render_verdict
from distbench.verdict import Run, Status
from distbench.verdict.document import verdict_from_json, verdict_to_json

TODAY = datetime.date(2026, 3, 31)
LIST = """
[nobody sums]
scenario = mlp-adam-*
code = missing-reduction, scale-error
reason = known since 2.20, 100 % of runs;
  see #41980
until = 2026-03-31
"""


def make_entry(**changes) -> Entry:
    settings = {
        "name": "nobody sums",
        "scenario": "mlp-adam-*",
        "codes": ("missing-reduction",),
        "reason": "known",
        "until": TODAY,
    }
    return Entry(**settings | changes)


def make_failed(*codes: str, **changes) -> Run:
    found = tuple(make_finding(code=code) for code in codes)
    return make_run(Status.FAIL, **{"findings": found} | changes)


def apply(*runs: Run, is_whole: bool = True, **changes):
    verdict = make_verdict(*runs)
    return apply_quarantine(verdict, [make_entry(**changes)], TODAY, is_whole=is_whole)


def test_a_list_is_read(tmp_path: Path) -> None:
    file = tmp_path / "quarantine.ini"
    file.write_text(
        LIST + LIST.replace("nobody", "none") + "tier = free\ntarget = a*\n"
    )
    first, second = read_quarantine(file)
    assert first == make_entry(
        codes=("missing-reduction", "scale-error"),
        reason="known since 2.20, 100 % of runs; see #41980",
    )
    assert (second.name, second.tier, second.target) == ("none sums", "free", "a*")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("until = 2026-03-31", ""), "entry 'nobody sums' lacks until"),
        (("2026-03-31", "soon"), "until must be a day such as 2026-03-31. Rec"),
        (("scale-error", "scale-eror"), "Did you mean 'scale-error'"),
        (("scenario =", "scenarios ="), "field 'scenarios' is not known"),
        (("[nobody sums]", ""), "line 3 stands before the first section: 'scenario = "),
        (("until = ", "until "), "has no '=': 'until 2026-03-31'. Expected a section"),
        (("31\n", "31\n[nobody sums]"), "line 8 is a second one of its name: '[nobody"),
        (("until =", "until = x\nuntil ="), "is a second one of its name: 'until = "),
        (("mlp-adam-*", ""), "lacks scenario. Expected scenario, code, reason, until"),
    ],
)
def test_a_list_that_cannot_be_is_refused(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    file = tmp_path / "quarantine.ini"
    file.write_text(LIST.replace(*change))
    with pytest.raises(BadInputError) as refused:
        read_quarantine(file)
    assert message in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_list_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        read_quarantine(tmp_path / "none.ini")


def test_a_known_failure_does_not_count() -> None:
    found = apply(make_failed("missing-reduction"), make_run())
    [known, other] = found.verdict.runs
    assert (known.status, known.quarantined) == (Status.FAIL, True)
    assert known.message == "quarantined until 2026-03-31 (nobody sums): known"
    assert not other.quarantined
    assert (found.verdict.status, found.verdict.exit_code) == (Status.PASS, 0)
    assert apply(make_failed("missing-reduction")).verdict.exit_code == 0


@pytest.mark.parametrize(
    ("run", "changes"),
    [
        (make_failed("missing-reduction", "raises"), {}),
        (make_failed("raises"), {}),
        (make_failed(), {}),
        (make_failed("missing-reduction", scenario="other"), {}),
        (make_failed("missing-reduction"), {"tier": "free"}),
        (make_failed("missing-reduction"), {"target": "sgd*"}),
        (make_failed("missing-reduction"), {"until": datetime.date(2026, 3, 30)}),
        (make_run(Status.ERROR), {}),
    ],
    ids=[
        "another-too",
        "another",
        "no-finding",
        "scenario",
        "tier",
        "target",
        "expired",
        "error",
    ],
)
def test_what_the_list_does_not_say_counts(run: Run, changes: dict) -> None:
    found = apply(run, **changes)
    assert not found.verdict.runs[0].quarantined
    assert found.verdict.exit_code != 0


def test_what_has_no_finding_is_known_by_its_status() -> None:
    for status in (Status.ERROR, Status.UNDECIDABLE, Status.FAIL):
        run = make_run(status, message="why")
        [known] = apply(run, codes=(str(status),)).verdict.runs
        assert known.message.endswith("known; why")
    assert not apply(make_failed("raises"), codes=("fail",)).verdict.runs[0].quarantined


def test_a_warning_beside_it_is_no_other_failure() -> None:
    warned = (make_finding(), make_finding(code="lower-precision", warning=True))
    assert apply(make_run(Status.FAIL, findings=warned)).verdict.runs[0].quarantined


@pytest.mark.parametrize(
    ("runs", "changes", "words"),
    [
        ([make_run()], {}, "mlp-adam-mwms:2-none passes; take it out if it is mended"),
        (
            [make_failed("missing-reduction"), make_run(scenario="mlp-adam-b")],
            {},
            "mlp-adam-b passes; leave these out if it is mended",
        ),
        ([make_run(scenario="other")], {}, "fits no scenario (mlp-adam-*)"),
        ([make_run()], {"until": datetime.date(2026, 3, 1)}, "counts no more"),
    ],
    ids=["mended", "in-part", "none", "expired"],
)
def test_what_is_to_be_done_about_the_list_is_told(
    runs: list[Run], changes: dict, words: str
) -> None:
    [remark] = apply(*runs, **changes).remarks
    assert words in remark


@pytest.mark.parametrize(
    ("runs", "is_whole"),
    [
        ([make_failed("missing-reduction")], True),
        ([make_failed("missing-reduction"), make_run(tier="exact")], True),
        ([make_run(Status.SKIPPED)], True),
        ([make_run(scenario="other")], False),
    ],
    ids=["fails", "in-another-tier", "skipped", "in-part"],
)
def test_else_nothing_is_told(runs: list[Run], is_whole: bool) -> None:
    assert not apply(*runs, is_whole=is_whole).remarks


def test_every_report_shows_what_does_not_count() -> None:
    verdict = apply(make_failed("missing-reduction"), reason="see #41980").verdict
    why = "quarantined until 2026-03-31 (nobody sums): see #41980"
    console = make_console(width=200)
    with console.capture() as captured:
        console.print(render_verdict(verdict, CheckOptions()))
    for text in (captured.get(), verdict_to_html(verdict, CheckOptions())):
        assert why in text
        assert "fail (known)" in text
    assert "pass: 1 fail (known)" in captured.get()
    suite = ElementTree.fromstring(verdict_to_junit(verdict))[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    skipped = suite.find("testcase/skipped")
    assert skipped is not None
    assert (skipped.get("type"), skipped.get("message")) == ("quarantined", why)
    assert verdict_from_json(verdict_to_json(verdict)) == verdict
