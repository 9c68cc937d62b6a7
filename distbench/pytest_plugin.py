"""The installed pytest plugin: the fixture `distbench`, and verdicts in reports.

Verdicts travel on the test reports, which pytest-xdist sends from its workers to the
controller; only the controller writes files.
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distbench.bench import Bench
from distbench.collected import BROKEN, FILES, FOLDERS, ON_REPORT, PREFIX, Collector
from distbench.engine_names import ENGINES

if TYPE_CHECKING:
    from distbench.verdict import Verdict

_VERDICTS = pytest.StashKey[list["Verdict"]]()
_PASSED = pytest.StashKey[bool]()
_SET = {
    "distbench_timeout": "timeout_s",
    "distbench_require_gpus": "require_gpus",
    "distbench_engine": "engine",
}
"""Fields of the options of all checks."""


@pytest.fixture
def distbench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Checks subjects and runs functions on real clusters."""
    # New ones: other plugins run a failed test again, as the same item.
    verdicts: list[Verdict] = []
    request.node.stash[_VERDICTS] = verdicts
    bench = Bench(_read_settings(request.config), verdicts)
    yield bench
    if request.node.stash.get(_PASSED, False):
        bench.warn_of_unread()


def _read_path(text: str) -> Path:
    """A path from the command line: an empty one would be the folder where one is."""
    if not text:
        raise ArgumentTypeError("it is empty. Expected the name of a file or folder")
    return Path(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the installed plugin; all begin with --distbench-."""
    group = parser.getgroup("distbench", "distributed training (distbench)")
    group.addoption(
        "--distbench-json",
        type=_read_path,
        metavar="FILE",
        help="write the verdicts of all tests as one JSON document",
    )
    group.addoption(
        "--distbench-html",
        type=_read_path,
        metavar="FILE",
        help="write the verdicts of all tests as one HTML page",
    )
    group.addoption(
        "--distbench-tensorboard",
        type=_read_path,
        metavar="DIR",
        help="write each replica's losses, norms and errors of all tests for "
        "TensorBoard",
    )
    group.addoption(
        "--distbench-tests",
        type=_read_path,
        metavar="FILE",
        help="write how each test ended as a verdict with one run for each, for "
        "'distbench history --add'",
    )
    group.addoption(
        "--distbench-timeout",
        type=float,
        metavar="S",
        help="deadline of each cluster in seconds, where a test sets none",
    )
    group.addoption(
        "--distbench-require-gpus",
        type=int,
        metavar="N",
        help="runs that lack GPUs are errors and not skipped",
    )
    group.addoption(
        "--distbench-engine",
        metavar="|".join(ENGINES),
        help="who starts the tasks of all tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what cannot work before any test has run."""
    from distbench.errors import BadInputError

    for name in (*FILES, *FOLDERS):
        path = config.getoption(name)
        if path is None:
            continue
        from distbench.report.earlier import VERDICT, check_report
        from distbench.report.files import check_folder
        from distbench.report.forms import FORMS

        try:
            if name in FOLDERS:
                check_folder(path)
            else:
                form = FORMS.get(name.removeprefix(PREFIX))
                check_report(path, form.kind if form else VERDICT, {})
        except BadInputError as error:
            raise pytest.UsageError(f"--{name.replace('_', '-')}: {error}") from None
    if files := [file for name in FILES if (file := config.getoption(name))]:
        from distbench.report.earlier import check_own_files

        try:
            check_own_files(files)
        except BadInputError as error:
            raise pytest.UsageError(str(error)) from None
    if settings := _read_settings(config):
        from distbench.options import CheckOptions
        from distbench.spelling import spelled

        options = {field: f"--{name.replace('_', '-')}" for name, field in _SET.items()}
        try:
            with spelled(lambda field: options.get(field, field)):
                CheckOptions(**settings)
        except BadInputError as error:
            raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(Collector(config), "distbench-collector")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the diagnosis in place of a traceback, and attach the verdicts."""
    from distbench.errors import BadInputError, ClusterError

    report = yield
    verdicts = item.stash.get(_VERDICTS, [])
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    if call.excinfo is not None and report.failed:
        if isinstance(call.excinfo.value, (BadInputError, ClusterError)):
            setattr(report, BROKEN, True)
        _explain_failure(report, call.excinfo, verdicts, item)
    # One report carries them: a test with subtests has several of its call.
    if call.when == "teardown" and verdicts:
        from distbench.verdict.document import verdict_to_json

        documents = [
            verdict_to_json(_name_test(v, item), details=True) for v in verdicts
        ]
        setattr(report, ON_REPORT, documents)
        item.stash[_VERDICTS] = []
    return report


def _name_test(verdict: Verdict, item: pytest.Item) -> Verdict:
    """Say of each run which test shows it again: a subject may have no name."""
    runs = (
        replace(run, setup={**run.setup, "test": item.nodeid}) for run in verdict.runs
    )
    return replace(verdict, runs=tuple(runs))


def _explain_failure(
    report: pytest.TestReport,
    excinfo: pytest.ExceptionInfo[BaseException],
    verdicts: Sequence[Verdict],
    item: pytest.Item,
) -> None:
    from distbench.errors import BadInputError, ClusterError, VerdictFailedError

    error = excinfo.value
    failed: list[Verdict] = []
    if isinstance(error, (VerdictFailedError, BadInputError, ClusterError)):
        # The message says it all; our own source lines would only hide it. It comes
        # first, as pytest's summary has its first line, and the place is told as
        # below pytest's tracebacks, where editors look for it.
        place = f"{_find_users_line(excinfo)}: {type(error).__name__}"
        report.longrepr = f"{error}\n\n{place}"
        if isinstance(error, ClusterError) and error.detail:
            report.sections.append(("distbench: tasks", error.detail))
        if isinstance(error, VerdictFailedError):
            failed += _find_verdicts(excinfo, ())  # the one that raised it
    elif isinstance(error, AssertionError):
        from distbench.verdict import describe_verdict

        failed += [v for v in _find_verdicts(excinfo, verdicts) if not v]
        # The frame holds what the fixture handed out: another object, the same words.
        if told := dict.fromkeys(map(describe_verdict, failed)):
            report.sections.append(("distbench: diagnosis", "\n".join(told)))
    named = [_name_test(verdict, item) for verdict in failed]
    if lines := dict.fromkeys(chain.from_iterable(map(_tell_next, named))):
        report.sections.append(("distbench: next", "\n".join(lines)))


def _tell_next(verdict: Verdict) -> Iterator[str]:
    """What there is to do about each finding that fails a test."""
    from distbench.options import CheckOptions
    from distbench.report.words import collect_findings, format_command, name_target

    for sighting in collect_findings(verdict):
        if sighting.finding.warning:
            continue
        run = sighting.runs[0]
        yield f"read more  distbench explain {sighting.finding.code}"
        target = name_target(verdict, run)
        yield f"reproduce  {format_command(target, run, CheckOptions())}"


def _find_users_line(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    """The innermost line of a file that is not the bench's own, nor Python's."""
    # The bench's context managers are left by way of Python's contextlib.
    known = {Path(__file__).parent, Path(os.__file__).parent}
    # What a dataclass generates is in no file.
    frames = [f for f in excinfo.traceback if Path(f.path).is_file()]
    others = [f for f in frames if known.isdisjoint(Path(f.path).parents)]
    last = (others or excinfo.traceback)[-1]
    return f"{last.path}:{last.lineno + 1}"


def _find_verdicts(
    excinfo: pytest.ExceptionInfo[BaseException], verdicts: Sequence[Verdict]
) -> Iterator[Verdict]:
    """The fixture's verdicts, and those that the failed frame holds.

    A test may call `distbench.check` itself; what `assert` saw is then a local of the
    frame, named by the user or by pytest's rewriting.
    """
    from distbench.verdict import Verdict

    held = excinfo.traceback[-1].frame.f_locals.values()
    return (value for value in (*verdicts, *held) if isinstance(value, Verdict))


def _read_settings(config: pytest.Config) -> dict[str, Any]:
    given = {field: config.getoption(name) for name, field in _SET.items()}
    settings = {field: value for field, value in given.items() if value is not None}
    if any(map(config.getoption, _list_detailed())):
        settings["details"] = True
    return settings


def _list_detailed() -> tuple[str, ...]:
    """Reports that show more of a run than its verdict."""
    from distbench.report.forms import FORMS

    given = {name: FORMS.get(name.removeprefix(PREFIX)) for name in FILES}
    return (*(name for name, form in given.items() if form and form.detailed), *FOLDERS)
