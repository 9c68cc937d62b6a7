"""The installed plugin, in test suites of its own and with a played check."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from plugin_suites import (
    MANY,
    RUN_AGAIN,
    check_endings,
    check_one_document,
    prepare,
    run_suite,
)
from verdict_samples import make_run, make_verdict

from distbench.history.suite import TestOutcome, make_suite_verdict
from distbench.verdict import Status
from distbench.verdict.document import verdict_from_json, verdict_to_json

pytest_plugins = ["pytester"]


@pytest.fixture
def suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    prepare(pytester, monkeypatch)
    return pytester


def test_a_passed_verdict_passes(suite: pytest.Pytester) -> None:
    result = run_suite(
        suite,
        """
        def test_it(distbench):
            verdict = distbench.check("right", cluster="mwms:3", steps=5)
            assert verdict
            from distbench.api import calls
            assert calls == [("right", "mwms:3", {"steps": 5})]
        """,
    )
    result.assert_outcomes(passed=1)


def test_a_failed_verdict_shows_the_diagnosis_and_no_traceback(
    suite: pytest.Pytester,
) -> None:
    result = run_suite(
        suite,
        """
        def test_it(distbench):
            distbench.check("wrong").raise_for_status()
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "wrong: fail, missing-reduction",
            "*Let the optimizer aggregate.*",
            "*/test_*.py:2: VerdictFailedError",
        ]
    )
    result.stdout.no_fnmatch_line("*raise VerdictFailedError*")


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "line",
    [
        "assert distbench.check('wrong')",
        "assert distbench.check('wrong').status == 'pass'",
        "v = distbench.check('wrong'); assert v, 'no'",
    ],
    ids=["verdict", "status", "message"],
)
@pytest.mark.parametrize("given", ["distbench", ""], ids=["fixture", "function"])
def test_a_failed_assertion_shows_the_diagnosis(
    suite: pytest.Pytester, line: str, given: str
) -> None:
    # The played module, also where another test has imported the real one: `import a.b
    # as c` would take what the package has as its attribute.
    played = "import sys\ndistbench = sys.modules['distbench.api']\n"
    imports = "" if given else played
    result = run_suite(suite, f"{imports}def test_it({given}):\n    {line}\n")
    result.assert_outcomes(failed=1)
    if given or "status" not in line:
        result.stdout.fnmatch_lines(["*diagnosis*", "*Let the optimizer aggregate.*"])
        assert result.stdout.str().count("Let the optimizer aggregate.") == 1


def test_a_broken_cluster_shows_its_log(suite: pytest.Pytester) -> None:
    result = run_suite(suite, "def test_it(distbench): distbench.check('broken')")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["worker-1 died*", "*.py:*: ClusterError", "*last log line*"]
    )
    result.stdout.fnmatch_lines(["FAILED *::test_it - worker-1 died"])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


@pytest.mark.parametrize(
    "parse",
    [
        "ClusterSpec.parse(text)",
        "CheckOptions(clusters=(text,))",
        "ExitStack().enter_context(contextmanager(ClusterSpec.parse)(text))",
    ],
    ids=["called", "generated", "by way of Python"],
)
def test_bad_input_is_told_at_the_line_of_the_test(
    suite: pytest.Pytester, parse: str
) -> None:
    result = run_suite(
        suite,
        f"""
        from distbench.options import CheckOptions, ClusterSpec
        from contextlib import ExitStack, contextmanager
        def parse(text):
            return {parse}

        def test_it(distbench):
            parse("mwms:two")
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["Cluster spec 'mwms:two' is not*", "*/test_*.py:4: BadInputError"]
    )
    result.stdout.no_fnmatch_line("*distbench/cluster.py*")


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("distbench.check('wrong')", 1),
        ("distbench.check('right')", 0),
        ("assert not distbench.check('wrong')", 0),
        ("assert distbench.check('wrong').findings", 0),
        ("assert not distbench.check('wrong').on('mwms:2')", 0),
    ],
    ids=["unread", "passed", "status", "findings", "on"],
)
def test_a_test_that_looks_at_no_failed_verdict_is_warned(
    suite: pytest.Pytester, line: str, warned: int
) -> None:
    """It would pass whatever a check comes to."""
    result = run_suite(suite, f"def test_it(distbench): {line}")
    # Warnings are errors here, as in many suites.
    result.assert_outcomes(passed=1, errors=warned)
    if warned:
        result.stdout.fnmatch_lines(["*<Verdict on wrong, fail: *> was not looked at*"])


def test_another_failure_stays_as_it_is(suite: pytest.Pytester) -> None:
    result = run_suite(
        suite,
        """
        def test_it(distbench):
            distbench.check("right")
            assert 1 == 2
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*diagnosis*")


def test_run_gives_results_by_task(suite: pytest.Pytester) -> None:
    result = run_suite(
        suite,
        """
        def test_it(distbench):
            results = distbench.run(lambda x: x + 1, args=(2,))
            assert results == {("worker", 0): (3, 7.0, "ray")}
        """,
        "--distbench-timeout=7",
        "--distbench-engine=ray",
    )
    result.assert_outcomes(passed=1)


def test_options_are_defaults_that_a_test_may_change(suite: pytest.Pytester) -> None:
    result = run_suite(
        suite,
        """
        def test_it(distbench):
            from distbench.api import calls
            distbench.check("right")
            distbench.check("right", timeout_s=1)
            assert [c[2] for c in calls] == [
                {"timeout_s": 9.0, "require_gpus": 1, "engine": "slurm"},
                {"timeout_s": 1, "require_gpus": 1, "engine": "slurm"},
            ]
        """,
        "--distbench-timeout=9",
        "--distbench-require-gpus=1",
        "--distbench-engine=slurm",
    )
    result.assert_outcomes(passed=1)


def test_all_verdicts_are_in_one_document(suite: pytest.Pytester) -> None:
    """The sweeps do the same under xdist, whose processes are slow to start."""
    check_one_document(suite)


def test_pytests_own_options_behave_as_always(suite: pytest.Pytester) -> None:
    """`-v` names a scenario, `--junitxml` has the diagnosis, `-x` stops, `-k` picks."""
    result = run_suite(suite, MANY, "-v", "-x", "--junitxml=j.xml")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*::test_it[[]right[]] PASSED*", "*wrong[]] FAILED*"])
    cases = ElementTree.parse(suite.path / "j.xml").findall(".//testcase")
    assert [case.get("name") for case in cases] == ["test_it[right]", "test_it[wrong]"]
    failure = cases[1].find("failure")
    assert failure is not None
    assert "Let the optimizer aggregate." in (failure.text or "")
    assert "Traceback" not in (failure.text or "")
    run_suite(suite, MANY, "-k", "right2").assert_outcomes(passed=1, deselected=4)


def test_the_failed_ones_alone_run_again(suite: pytest.Pytester) -> None:
    suite.makepyfile(MANY)
    for words, outcomes in (
        ((), {"passed": 4, "failed": 1}),
        (("--lf",), {"failed": 1}),
    ):
        result = suite.runpytest_inprocess("-pno:hypothesispytest", *words)
        result.assert_outcomes(**outcomes)


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


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--distbench-tensorboard=", "--distbench-tensorboard: it is empty"),
        ("--distbench-engine=rai", "Engine 'rai' is not known"),
        ("--distbench-timeout=0", "--distbench-timeout must be"),
        (
            "--distbench-json=v.json --distbench-html=v.json",
            "Each report needs a file of its own. Received: v.json, v.json.",
        ),
    ],
)
def test_an_option_that_no_check_takes_is_refused_at_once(
    suite: pytest.Pytester, option: str, words: str
) -> None:
    result = run_suite(suite, MANY, *option.split(" "))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{words}*"])


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
