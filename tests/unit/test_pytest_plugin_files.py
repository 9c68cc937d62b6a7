"""What the installed plugin writes of a suite, and what it leaves alone."""

from __future__ import annotations

import pytest
from plugin_suites import (
    MANY,
    RUN_AGAIN,
    check_endings,
    check_one_document,
    run_suite,
)
from verdict_samples import make_run, make_verdict

from distbench.history.suite import TestOutcome, make_suite_verdict
from distbench.verdict import Status
from distbench.verdict.document import verdict_from_json, verdict_to_json

pytest_plugins = ["pytester"]


def test_all_verdicts_are_in_one_document(suite: pytest.Pytester) -> None:
    """The sweeps do the same under xdist, whose processes are slow to start."""
    check_one_document(suite)


@pytest.mark.parametrize(
    ("fails", "ended"),
    [("test", "pass"), ("teardown", "pass"), ("set-up", "pass"), ("always", "fail")],
)
def test_of_a_test_that_is_run_again_the_last_run_counts(
    suite: pytest.Pytester, fails: str, ended: str
) -> None:
    suite.makeconftest((suite.path / "conftest.py").read_text() + RUN_AGAIN)
    result = run_suite(
        suite,
        f"""
        import pytest
        runs = []
        @pytest.fixture
        def late():
            yield
            assert len(runs) > 1 or {fails!r} != "teardown"
        @pytest.fixture
        def early():
            runs.append(1)
            assert len(runs) != 2 or {fails!r} != "set-up"
        def test_it(late, early, distbench):
            is_wrong = {fails!r} == "always" or len(runs) == 1
            subject = "wrong" if is_wrong and {fails!r} != "teardown" else "right"
            distbench.check(subject).raise_for_status()
        """,
        "--distbench-json=v.json",
        "--distbench-tests=t.json",
    )
    result.stdout.fnmatch_lines(["*distbench: 1 verdict in v.json"])
    verdict = verdict_from_json((suite.path / "v.json").read_text())
    assert [str(run.status) for run in verdict.runs] == [ended]
    [test] = verdict_from_json((suite.path / "t.json").read_text()).runs
    assert str(test.status) == ended


def test_the_verdicts_of_a_test_with_subtests_are_told_once(
    suite: pytest.Pytester,
) -> None:
    result = run_suite(
        suite,
        """
        def test_it(distbench, subtests):
            for subject in ("a", "wrong", "b"):
                with subtests.test(subject=subject):
                    assert distbench.check(subject)
        """,
        "--distbench-json=v.json",
    )
    result.stdout.fnmatch_lines(["*distbench: 3 verdicts in v.json"])


def test_a_place_that_cannot_be_written_is_refused_at_once(
    suite: pytest.Pytester,
) -> None:
    result = run_suite(suite, MANY, "--distbench-json=no/v.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--distbench-json: *there is no folder*"])


def test_tests_that_are_only_listed_leave_earlier_verdicts_alone(
    suite: pytest.Pytester,
) -> None:
    earlier = suite.path / "v.json"
    earlier.write_text(text := verdict_to_json(make_verdict(make_run())))
    result = run_suite(suite, MANY, "--collect-only", f"--distbench-json={earlier}")
    assert result.ret == pytest.ExitCode.OK
    assert earlier.read_text() == text
    result.stdout.no_fnmatch_line("distbench: *")


@pytest.mark.parametrize("passes", [True, False])
def test_a_report_that_cannot_be_written_leaves_the_others_and_is_told(
    suite: pytest.Pytester, passes: bool
) -> None:
    """Earlier ones are away from the start, or they would be read as new."""
    (folder := suite.path / "gone").mkdir()
    (suite.path / "t.json").write_text(verdict_to_json(make_verdict(make_run())))
    result = run_suite(
        suite,
        f"""
        from pathlib import Path

        def test_it():
            Path({str(folder)!r}).rmdir()
            assert {passes} and not Path("t.json").exists()
        """,
        "--distbench-json=gone/v.json",
        "--distbench-tests=t.json",
    )
    codes = pytest.ExitCode
    assert result.ret == (codes.INTERNAL_ERROR if passes else codes.TESTS_FAILED)
    result.stdout.fnmatch_lines(
        [
            "*distbench: 'gone/v.json' could not be written*",
            "*distbench: 1 test in t.json",
        ]
    )
    suite_verdict = verdict_from_json((suite.path / "t.json").read_text())
    assert [run.scenario for run in suite_verdict.runs] != [make_run().scenario]


def test_the_curves_of_all_tests_are_in_one_folder(suite: pytest.Pytester) -> None:
    result = run_suite(suite, MANY, "--distbench-tensorboard=curves")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*distbench: 5 verdicts in curves*"])
    assert (suite.path / "curves" / "series").read_text() == "5"
    result = run_suite(suite, MANY, "--distbench-tensorboard=curves/series")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--distbench-tensorboard: *is a file*"])


def test_how_each_test_ended_is_written(suite: pytest.Pytester) -> None:
    check_endings(suite)


def test_a_check_without_a_judgement_is_no_failure_of_the_test() -> None:
    verdict = make_verdict(make_run(Status.UNDECIDABLE, message="noise"))
    outcome = TestOutcome(
        id="test_x.py::test_y[a::b]",
        status=Status.FAIL,
        seconds=1.0,
        message="a.b: undecidable",
        verdicts=(verdict,),
    )
    [run] = make_suite_verdict([outcome], "pytest").runs
    assert (run.status, run.scenario) == (Status.UNDECIDABLE, "test_y[a::b]")
    assert run.message == "noise"


def test_what_an_earlier_run_of_a_test_checked_is_told_once(
    suite: pytest.Pytester,
) -> None:
    """The next one may not get to its checks."""
    suite.makeconftest((suite.path / "conftest.py").read_text() + RUN_AGAIN)
    result = run_suite(
        suite,
        """
        import pytest
        runs = []
        @pytest.fixture
        def early():
            runs.append(1)
            assert len(runs) == 1
        def test_it(early, distbench):
            distbench.check("wrong").raise_for_status()
        """,
        "--distbench-json=v.json",
    )
    result.assert_outcomes(errors=1)
    told = result.stdout.str()
    assert "Let the optimizer aggregate." not in told
    assert "1 verdict" not in told
