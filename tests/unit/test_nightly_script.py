"""`scripts/nightly`: what it plans, and what becomes of a job."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from imported_scripts import NIGHTLY, share_scripts
from verdict_samples import make_run, make_verdict
from waiting import comes_true, is_gone_soon

from distbench.cluster import ClusterSpec
from distbench.errors import NOT_JUDGED
from distbench.machine import Machine
from distbench.verdict import Run, Status
from distbench.verdict.document import verdict_to_json

ROOT = Path(__file__).parents[2]


scripts = share_scripts(*NIGHTLY)


def make_machine(gpus: int = 0, cores: int = 2) -> Machine:
    return Machine(cores=cores, memory_bytes=64 * 2**30, gpus=gpus)


CORES = ("mirrored:2@cpu", "mwms:2@cpu", "ps:2+1@cpu")


@pytest.mark.parametrize(
    ("gpus", "required", "clusters"),
    [
        (0, 0, ()),
        (1, 0, ("mirrored:all@gpu",)),
        (3, 0, ("mirrored:all@gpu", "mwms:all@gpu")),
        (8, 0, ("mirrored:all@gpu", "mwms:all@gpu", "mwms:2x4@gpu")),
        (8, 8, ("mirrored:all@gpu", "mwms:all@gpu", "mwms:2x4@gpu")),
        (2, 4, ("mirrored:4@gpu", "mwms:4@gpu")),
        (0, 4, ("mirrored:4@gpu", "mwms:4@gpu")),
    ],
)
def test_clusters_use_what_the_machine_has(
    scripts: Any, gpus: int, required: int, clusters: tuple[str, ...]
) -> None:
    machine = make_machine(gpus)
    planned = scripts["nightly_plan"].plan_clusters(machine, required)
    assert planned == (*CORES, *clusters)
    lacks = [machine.find_lack(ClusterSpec.parse(spec)) for spec in planned]
    told = [lack for lack in lacks if lack]
    # GPUs that are required and lacking are planned, so that it is told.
    short = required > gpus
    assert told == ([f"need {required} GPUs, have {gpus}"] * 2 if short else [])


def test_many_cores_make_no_more_than_eight_replicas(scripts: Any) -> None:
    plan = scripts["nightly_plan"].plan_clusters
    assert plan(make_machine(cores=64))[0] == "mirrored:8@cpu"


def plan(scripts: Any, *, gpus: int = 0, **options: Any) -> tuple[Any, ...]:
    clusters = scripts["nightly_plan"].plan_clusters(
        make_machine(gpus), options.get("require_gpus", 0)
    )
    return scripts["nightly_plan"].plan_jobs(
        clusters,
        [Path("scenarios/test_a.py"), Path("scenarios/test_b.py")],
        ["o/sgd.py:make_sgd", "p/sgd.py:make_sgd"],
        ["loop.py:Program"],
        **options,
    )


def test_every_optimizer_has_a_variant_before_any_has_the_next(scripts: Any) -> None:
    names = [job.name for job in plan(scripts)]
    assert names[:6] == [
        "scenarios-test_a",
        "scenarios-test_b",
        "sgd-float32",
        "sgd-float32-2",
        "sgd-float32-64",
        "sgd-float32-64-2",
    ]
    assert names[-1] == "Program"
    assert len(set(names)) == len(names)


def test_jobs_are_commands(scripts: Any) -> None:
    jobs = {job.name: job for job in plan(scripts, gpus=2, require_gpus=2, workers=3)}
    tests = jobs["scenarios-test_a"].make_command(Path("v.json"))
    assert tests[:4] == [sys.executable, "-m", "pytest", "scenarios/test_a.py"]
    assert tests[-6:-4] == ["-n", "3"]
    assert tests[-4:] == ["--require-gpus", "2", "--distbench-tests", "v.json"]
    half = " ".join(jobs["sgd-float16"].make_command(Path("v.json")))
    assert "check o/sgd.py:make_sgd -c mirrored:2@cpu -c mwms:2@cpu" in half
    assert "-c mirrored:all@gpu -c mwms:all@gpu --require-gpus 2" in half
    assert half.endswith("--tier exact --tier bounded --dtype float16 --json v.json")
    assert "--examples 64" in " ".join(jobs["sgd-float32-64"].words)
    assert "--dtype" not in jobs["Program"].words
    assert "-j 3" in half


def test_every_job_has_the_engine_and_the_clusters_that_are_asked_for(
    scripts: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--engine", "slurm", "-c", "mwms:2x8@gpu", "--list"]
    assert scripts["nightly"].main(asked) == 0
    for line in capsys.readouterr().out.splitlines():
        if " pytest " in line:
            assert "--distbench-engine slurm" in line
        else:
            assert "-c mwms:2x8@gpu --engine slurm" in line
            assert "mirrored" not in line
    assert scripts["nightly"].main(["-c", "mwms:0", "--list"]) == 2
    assert "mwms:0" in capsys.readouterr().err


def test_every_option_of_a_check_is_one(scripts: Any) -> None:
    """The real commands are asked, so that a renamed option is noticed.

    What pytest is told, `test_scenario_collection.py` asks.
    """
    from distbench.cli import app
    from distbench.options import CheckOptions

    check = typer.main.get_group(app).commands["check"]
    every = plan(scripts, gpus=8, require_gpus=8, workers=2, engine="slurm")
    for job in (job for job in every if job.kind == "check"):
        package, command, *words = job.words
        assert (package, command) == ("distbench", "check")
        written = job.make_command(Path("v.json"))[-2:]
        given = check.make_context("check", [*words, *written]).params
        CheckOptions(
            clusters=tuple(given["cluster"]),
            tiers=tuple(given["tier"]),
            dtype=given["dtype"],
            examples=given["examples"],
            workloads=tuple(given["workload"]),
        )


WRITE = "import pathlib; pathlib.Path({place!r}).write_text({text!r}); {then}"


@pytest.fixture
def play(scripts: Any, tmp_path: Path) -> Callable[..., Any]:
    """Runs a job that writes a verdict and does something then."""

    def run(
        *runs: Run,
        then: str = "",
        text: str | None = None,
        is_over: Callable[[], bool] = lambda: False,
        seconds: float = 30.0,
        kind: str = "check",
    ) -> Any:
        written = verdict_to_json(make_verdict(*runs)) if text is None else text

        class Played(scripts["nightly_plan"].Job):
            def make_command(self, verdict: Path) -> list[str]:
                code = WRITE.format(place=str(verdict), text=written, then=then)
                return [sys.executable, "-c", code]

        jobs = scripts["nightly_jobs"]
        limits = jobs.Limits(seconds=seconds, is_over=is_over, grace_s=1.0)
        job = Played(name="job", kind=kind, words=())
        return jobs.run_job(job, tmp_path, tmp_path, limits)

    return run


@pytest.mark.first(2)
@pytest.mark.parametrize("status", list(Status), ids=str)
def test_what_a_job_wrote_is_kept_whatever_it_says(play, status: Status) -> None:
    code = make_verdict(make_run(status)).exit_code
    done = play(make_run(status), then=f"exit({code})")
    assert [run.status for run in done.verdict.runs] == [status]


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("then", "text", "words"),
    [
        ("exit(2)", "", "ended with code 2: no output"),
        ("print('a\\n\\nno such file\\n'); exit(2)", "", "code 2: no such file (see "),
        ("import os; os.kill(os.getpid(), 11)", "", "ended with code -11"),
        ("", "{", "left no verdict that can be read: This is not a verdict"),
        ("pathlib.Path('job.json').unlink()", "", "left no verdict (see"),
    ],
    ids=["usage", "words", "crash", "broken", "none"],
)
def test_a_job_that_breaks_is_an_error(play, then: str, text: str, words: str) -> None:
    [run] = play(then=then, text=text).verdict.runs
    assert (run.status, run.scenario) == (Status.ERROR, "job")
    assert words in run.message


@pytest.mark.sweep
def test_a_job_that_hangs_is_ended_and_what_it_wrote_is_kept(play) -> None:
    stubborn = "import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(60)"
    begin_s = time.monotonic()
    done = play(make_run(), then=stubborn, seconds=1.0)
    assert time.monotonic() - begin_s < 50
    assert [run.status for run in done.verdict.runs] == [Status.PASS, Status.ERROR]
    assert "did not end within 1 s" in done.verdict.runs[1].message


def test_what_a_job_started_ends_with_it(play, tmp_path: Path) -> None:
    """The job heeds the signal, and its child does not."""
    child = (
        "import signal, time; signal.signal(2, signal.SIG_IGN); "
        f"open({str(tmp_path / 'ready')!r}, 'w').close(); time.sleep(60)"
    )
    then = (
        "import subprocess, sys, time; "
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}]); "
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid)); "
        "time.sleep(60)"
    )
    play(make_run(), then=then, is_over=(tmp_path / "ready").exists)
    assert is_gone_soon(int((tmp_path / "pid").read_text()))


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="need a signal of Linux'")
def test_a_job_ends_with_a_night_that_is_killed(tmp_path: Path) -> None:
    script, pid = tmp_path / "night.py", tmp_path / "pid"
    script.write_text(
        f"import os, pathlib, sys; sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
        "import nightly_jobs, nightly_plan\n"
        "code = 'import os, pathlib, time; p = pathlib.Path(\"pid\");' \\\n"
        "    'p.write_text(str(os.getpid())); time.sleep(60)'\n"
        "class Job(nightly_plan.Job):\n"
        "    def make_command(self, verdict): return [sys.executable, '-c', code]\n"
        "here = pathlib.Path.cwd()\n"
        "limits = nightly_jobs.Limits(seconds=60.0, is_over=lambda: False)\n"
        "job = Job(name='job', kind='check', words=())\n"
        "nightly_jobs.run_job(job, here, here, limits)\n"
    )
    night = subprocess.Popen([sys.executable, script], cwd=tmp_path)
    try:
        assert comes_true(lambda: pid.exists() and pid.read_text())
    finally:
        night.kill()
        night.wait()
    assert is_gone_soon(int(pid.read_text()))


def test_a_job_that_the_night_ends_is_no_error(play, tmp_path: Path) -> None:
    left = make_run(Status.ERROR, message=f"{NOT_JUDGED}interrupted")
    then = "pathlib.Path('written').touch(); import time; time.sleep(60)"
    is_over = (tmp_path / "written").exists
    done = play(make_run(), left, then=then, is_over=is_over)
    assert done.is_cut
    assert [run.status for run in done.verdict.runs] == [Status.PASS]


def test_pytest_without_tests_is_in_order(play) -> None:
    assert not play(then="exit(5)", kind="tests").verdict.runs
