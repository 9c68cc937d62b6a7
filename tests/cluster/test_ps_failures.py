"""Tasks of parameter servers that are really killed or stopped, and what is said of it.

Programs and injuries are those of scripts/ps_failures.py. Where a deadline has to pass,
the row of docs/ps-failures.md is the record: a test would only wait.
"""

from __future__ import annotations

import pytest
from imported_scripts import import_scripts

from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly

with import_scripts("measured", "ps_failures") as scripts:
    failures = scripts["ps_failures"]


def _hurt(name: str):
    verdict = failures.check_hurt(failures.CASES[name], timeout_s=180)
    assert failures.list_tasks() == []
    (run,) = verdict.runs
    return run, describe_verdict(verdict)


@pytest.mark.parametrize("name", ["after", "returns"])
def test_a_step_that_was_run_again_after_it_had_written_is_extra(name: str) -> None:
    run, text = _hurt(name)
    assert run.status is Status.FAIL, text
    (finding,) = run.findings
    assert (finding.code, finding.step) == ("extra-update", failures._HELD)
    assert finding.variables == ("tally",)
    assert "TensorFlow ran step 2 again" in finding.explanation
    assert "step 2 had to be run again" in run.message
    assert "was sent SIGKILL with step 4" in run.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("before", "step 2 had to be run again", marks=LONG),
        pytest.param("continued", "it went on with step 5", marks=LONG),
    ],
)
def test_a_worker_that_is_lost_or_late_loses_nothing(name: str, said: str) -> None:
    run, text = _hurt(name)
    assert run.status is Status.PASS, text
    assert said in run.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("server", "Task chief-0 .* raised UnavailableError", marks=LONG),
        pytest.param("server-returns", "chief-0 .* raised|by chief-0", marks=LONG),
        pytest.param("stopped", "worker-. .* was stopped by a signal", marks=LONG),
        pytest.param("chief", "chief-0 .* was killed by SIGKILL", marks=LONG),
    ],
)
def test_a_job_that_cannot_go_on_ends_in_an_error(name: str, said: str) -> None:
    run, text = _hurt(name)
    assert run.status is Status.ERROR, text
    assert run.findings == ()
    assert run.message.startswith("On purpose ")
    assert failures.re.search(said, run.message), run.message
    assert "passed its deadline" not in run.message
