"""The verdicts of a pytest session, and how its tests ended, gathered and written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from distbench.history.suite import TestOutcome
    from distbench.verdict import Verdict

ON_REPORT = "distbench_verdicts"
"""The attribute of a test's report with the documents of its verdicts."""
BROKEN = "distbench_broken"
"""That of a report of a test that ended by the bench's own trouble."""
FILES = ("distbench_json", "distbench_html", "distbench_tests")
FOLDERS = ("distbench_tensorboard",)
PREFIX = "distbench_"
"""What the names of options have before those of `distbench.report.forms`."""
_RUN_AGAIN: str = "rerun"


class Collector:
    """Gathers the verdicts of a session and writes them when it is over."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_xdist_worker = hasattr(config, "workerinput")
        self._tests: dict[str, list[pytest.TestReport]] = {}
        self._void: set[str] = set()
        self._earlier = ExitStack()
        self._unwritten: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the verdicts that a report carries, from xdist's workers too.

        Of a test that another plugin runs again the last run alone counts, as it does
        for pytest: pytest-rerunfailures calls what failed before "rerun", and what it
        tells of the same run after that is as void.
        """
        if report.when == "setup":
            self._void.discard(report.nodeid)
        if report.outcome == _RUN_AGAIN:
            self._void.add(report.nodeid)
            self._tests.pop(report.nodeid, None)
        if report.nodeid not in self._void:
            self._tests.setdefault(report.nodeid, []).append(report)

    def pytest_sessionstart(self) -> None:
        """Take earlier reports away: none is to be read as one of this session."""
        if places := self._list_places():
            from distbench.report.files import set_aside

            files = [place for name, place in places.items() if name in FILES]
            self._earlier.enter_context(set_aside(files))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what was asked for, if tests were run."""
        places = self._list_places()
        if not places:
            return
        from distbench.errors import ClusterError
        from distbench.verdict import merge_verdicts
        from distbench.verdict.document import verdict_from_json

        merged = merge_verdicts(map(verdict_from_json, self._list_documents()))
        for name, place in places.items():
            try:
                self._write(name, place, merged)
            except ClusterError as error:
                self._unwritten[name] = str(error)
        self._earlier.close()
        if self._unwritten and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def _write(self, name: str, place: Path, merged: Verdict) -> None:
        from distbench.options import CheckOptions
        from distbench.report.files import write_report
        from distbench.report.forms import FORMS
        from distbench.verdict.document import verdict_to_json

        if name == "distbench_tests":
            from distbench.history.suite import make_suite_verdict

            outcomes = [
                _make_outcome(test, reports)
                for test, reports in self._tests.items()
                if _has_ended(reports)
            ]
            suite = make_suite_verdict(outcomes, "pytest")
            write_report(place, verdict_to_json(suite) + "\n")
        elif name in FOLDERS:
            from distbench.summaries import write_summaries

            write_summaries(merged, CheckOptions(), place)
        else:
            form = FORMS[name.removeprefix(PREFIX)]
            write_report(place, form.write(merged, CheckOptions()))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the verdicts are."""
        from distbench.errors import count_things

        for name, place in self._list_places().items():
            if name in self._unwritten:
                terminalreporter.write_line(f"distbench: {self._unwritten[name]}")
                continue
            told = count_things(len(self._list_documents()), "verdict")
            if name == "distbench_tests":
                ended = sum(map(_has_ended, self._tests.values()))
                told = count_things(ended, "test")
            terminalreporter.write_line(f"distbench: {told} in {place}")

    def _list_documents(self) -> list[str]:
        return [
            text
            for reports in self._tests.values()
            for report in reports
            for text in getattr(report, ON_REPORT, ())
        ]

    def _list_places(self) -> dict[str, Path]:
        """Where verdicts go, by the option; nowhere if tests are only listed.

        Of xdist's processes the controller alone writes.
        """
        if self._config.option.collectonly or self._is_xdist_worker:
            return {}
        options = {name: self._config.getoption(name) for name in (*FILES, *FOLDERS)}
        return {name: place for name, place in options.items() if place}


def _has_ended(reports: Sequence[pytest.TestReport]) -> bool:
    """Whether a test was run: of one that Ctrl-C ended there is its set-up alone."""
    return any(report.when == "call" or not report.passed for report in reports)


def _make_outcome(test: str, reports: Sequence[pytest.TestReport]) -> TestOutcome:
    """What the reports on set-up, call and tear-down of a test say together."""
    from distbench.history.suite import TestOutcome
    from distbench.verdict import Status
    from distbench.verdict.document import verdict_from_json

    failed = next((report for report in reports if report.failed), None)
    skipped = next((report for report in reports if report.skipped), None)
    status, message, detail = Status.PASS, "", ""
    if failed is not None:
        is_wrong = failed.when == "call" and not getattr(failed, BROKEN, False)
        status = Status.FAIL if is_wrong else Status.ERROR
        detail = str(failed.longrepr)
        message = _find_last_line(failed)
    elif skipped is not None and hasattr(skipped, "wasxfail"):
        message = f"expected to fail: {skipped.wasxfail}"
    elif skipped is not None:
        status, message = Status.SKIPPED, _find_reason(skipped)
    return TestOutcome(
        id=test,
        status=status,
        seconds=sum(report.duration for report in reports if report.when == "call"),
        message=message,
        detail=detail,
        verdicts=tuple(
            verdict_from_json(text)
            for report in reports
            for text in getattr(report, ON_REPORT, ())
        ),
    )


def _find_last_line(report: pytest.TestReport) -> str:
    """What went wrong in one line: pytest's summary of it, or the diagnosis' first."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longrepr
    return str(text).strip().partition("\n")[0]


def _find_reason(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
