"""The installed plugin, in test suites of its own and with a played check."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from plugin_suites import (
    MANY,
    run_suite,
)

pytest_plugins = ["pytester"]


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
            "*distbench: next*",
            "read more  distbench explain missing-reduction",
            "reproduce  pytest *::test_it",
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
        result.stdout.fnmatch_lines(["*next*", "read more*", "reproduce  pytest *"])
        assert result.stdout.str().count("reproduce") == 1


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
    result.stdout.no_fnmatch_line("*distbench: next*")


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
