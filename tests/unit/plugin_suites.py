"""Test suites that use the installed plugin with a played check."""

from __future__ import annotations

from pathlib import Path

# A suite that runs in this process forgets what it imported, and NumPy, which pages
# need, cannot be imported twice.
import numpy  # noqa: F401
import pytest

from distbench.verdict import Status
from distbench.verdict.document import verdict_from_json

CONFTEST = """
import sys, types
sys.path.insert(0, {folder!r})
from verdict_samples import make_finding, make_run, make_verdict
from distbench.details import Details, Series
from distbench.errors import ClusterError
from distbench.verdict import Status

calls = []

def check(subject, cluster="mwms:2", **options):
    calls.append((subject, cluster, options))
    if subject == "broken":
        raise ClusterError("worker-1 died", detail="last log line")
    finding = make_finding(explanation="Let the optimizer aggregate.")
    fails = subject == "wrong"
    line = Series(
        phase="loss", variable="", replica=0, observed=True, steps=(0,), values=(0.5,)
    )
    kept = Details(series=(line,)) if options.pop("details", False) else None
    return make_verdict(
        make_run(Status.FAIL, findings=(finding,), details=kept)
        if fails
        else make_run(details=kept),
        target=subject,
    )

def run(function, cluster="mwms:2", *, args=(), timeout_s=120.0, faults=(), engine):
    return {{("worker", 0): (function(*args), timeout_s, engine)}}

api = types.ModuleType("distbench.api")
api.check, api.calls = check, calls
sys.modules["distbench.api"] = api
call = types.ModuleType("distbench.call")
call.run = run
sys.modules["distbench.call"] = call

def write_summaries(verdict, options, folder):
    folder.mkdir()
    kept = [run.details.series for run in verdict.runs if run.details]
    (folder / "series").write_text(str(len(kept)))

summaries = types.ModuleType("distbench.summaries")
summaries.write_summaries = write_summaries
sys.modules["distbench.summaries"] = summaries
"""

MANY = """
import pytest

@pytest.mark.parametrize("subject", ["right", "wrong", "right2"])
def test_it(distbench, subject):
    distbench.check(subject).raise_for_status()

def test_two(distbench):
    assert distbench.check("a") and distbench.check("b")

def test_none():
    pass
"""

RUN_AGAIN = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    # As pytest-rerunfailures does it.
    for left in (2, 1, 0):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            if report.failed and left:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
        if all(report.outcome != "rerun" for report in reports):
            return True
"""

ENDINGS = """
import pytest

def test_passes(distbench):
    assert distbench.check("right")

def test_finds_the_mistake(distbench):
    assert str(distbench.check("wrong").status) == "fail"

def test_fails(distbench):
    distbench.check("wrong").raise_for_status()

def test_fails_by_itself(distbench):
    assert distbench.check("right").runs[0].checked == 3, "three"

def test_breaks(distbench):
    distbench.check("broken")

@pytest.mark.skip(reason="need 2 GPUs, have 0")
def test_is_skipped():
    pass

@pytest.mark.xfail(strict=True, reason="upstream")
def test_is_expected_to_fail(distbench):
    assert distbench.check("wrong")

@pytest.mark.xfail(strict=True, reason="upstream")
def test_passes_unexpectedly(distbench):
    assert distbench.check("right")

@pytest.fixture
def broken():
    raise RuntimeError("no disk")

def test_has_no_fixture(broken):
    pass
"""


def prepare(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the folder a suite whose checks are played."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest(CONFTEST.format(folder=str(Path(__file__).parent)))


def run_suite(suite: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    suite.makepyfile(text)
    # Only xdist needs processes of its own; they are slow to start.
    start = suite.runpytest_subprocess if "-n" in words else suite.runpytest_inprocess
    unwanted = ("cacheprovider", "hypothesispytest", "timeout")
    return start(*(f"-pno:{name}" for name in unwanted), *words)


def check_one_document(suite: pytest.Pytester, *words: str) -> None:
    """The verdicts of all tests are in one document, and the count is told."""
    files = ("--distbench-json=v.json", "--distbench-html=v.html")
    result = run_suite(suite, MANY, *files, *words)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*distbench: 5 verdicts in v.json*"])
    verdict = verdict_from_json((suite.path / "v.json").read_text())
    assert sorted(verdict.target.split(", ")) == ["a", "b", "right", "right2", "wrong"]
    assert len(verdict.runs) == 5
    assert verdict.status is Status.FAIL
    page = (suite.path / "v.html").read_text()
    assert "Let the optimizer aggregate." in page
    assert "py::test_it[wrong]&#39;" in page  # the command that shows it again
    assert page.count("<figcaption>loss of each replica and of one device") == 6
    assert '"details"' not in (suite.path / "v.json").read_text()


def check_endings(suite: pytest.Pytester, *words: str) -> None:
    """How each test ended is written, whatever its checks found."""
    result = run_suite(suite, ENDINGS, "--distbench-tests=t.json", *words)
    result.stdout.fnmatch_lines(["*distbench: 9 tests in t.json"])
    verdict = verdict_from_json((suite.path / "t.json").read_text())
    ended = {
        run.scenario: (
            str(run.status),
            [finding.code for finding in run.findings],
            run.worst.error_over_bound if run.worst else None,
        )
        for run in verdict.runs
    }
    wrong = ["missing-reduction"]
    assert ended == {
        "test_passes": ("pass", [], 0.25),
        # What it planted is no finding of the test.
        "test_finds_the_mistake": ("pass", [], None),
        "test_fails": ("fail", wrong, None),
        "test_fails_by_itself": ("fail", [], 0.25),
        "test_breaks": ("error", [], None),
        "test_is_skipped": ("skipped", [], None),
        "test_is_expected_to_fail": ("pass", [], None),
        "test_passes_unexpectedly": ("fail", [], 0.25),
        "test_has_no_fixture": ("error", [], None),
    }
    runs = {run.scenario: run for run in verdict.runs}
    assert "worker-1 died" in runs["test_breaks"].message
    assert runs["test_is_skipped"].message == "need 2 GPUs, have 0"
    assert runs["test_is_expected_to_fail"].message == "expected to fail: upstream"
    assert "three" in runs["test_fails_by_itself"].message
    assert "no disk" in runs["test_has_no_fixture"].detail
    file = runs["test_fails"].setup["target"]
    assert runs["test_fails"].setup["test"] == f"{file}::test_fails"
    assert verdict.environment["tensorflow"] == "2.21.0"
    assert verdict.status is Status.FAIL
