"""`scripts/nightly`: what it plans, runs, keeps and tells. Its jobs are played."""

from __future__ import annotations

import argparse
import datetime
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from imported_scripts import import_scripts
from verdict_samples import make_finding, make_run, make_verdict

from distbench.cluster import ClusterSpec
from distbench.history.store import History
from distbench.machine import Machine
from distbench.verdict import Run, Status, Worst
from distbench.verdict.document import verdict_from_json, verdict_to_json

ROOT = Path(__file__).parents[2]
NAMES = ("measured", "nightly_plan", "nightly_jobs", "nightly")


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, Any]]:
    with import_scripts(*NAMES) as modules:
        yield modules


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


def test_every_option_of_a_job_is_one(scripts: Any) -> None:
    """The real commands are asked, so that a renamed option is noticed."""
    from distbench.options import CheckOptions

    for variant in scripts["nightly_plan"].VARIANTS:
        CheckOptions(
            clusters=scripts["nightly_plan"].plan_clusters(make_machine(8)),
            tiers=variant.tiers,
            dtype=variant.dtype,
            examples=variant.examples,
            workloads=(variant.workload,) if variant.workload else (),
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
    assert time.monotonic() - begin_s < 20
    assert [run.status for run in done.verdict.runs] == [Status.PASS, Status.ERROR]
    assert "did not end within 1 s" in done.verdict.runs[1].message


def test_a_job_that_the_night_ends_is_no_error(play) -> None:
    done = play(make_run(), then="import time; time.sleep(60)", is_over=lambda: True)
    assert done.is_cut
    assert all(run.status is Status.PASS for run in done.verdict.runs)


def test_pytest_without_tests_is_in_order(play) -> None:
    assert not play(then="exit(5)", kind="tests").verdict.runs


class Nights:
    """Nights whose jobs are played, one after the other, in one history."""

    def __init__(self, scripts: Any, out: Path, monkeypatch: pytest.MonkeyPatch):
        self._nightly = scripts["nightly"]
        self._done = scripts["nightly_jobs"].Done
        self._patch = monkeypatch
        self._out = out
        self.folder = out

    def run(self, runs: dict[str, list[Run]], *words: str) -> int:
        def run_job(job: Any, *_: Any) -> Any:
            found = runs.get(job.name, [make_run(setup={"target": job.name})])
            environment = {"tensorflow": "2.21.0", "devices": [job.name]}
            return self._done(verdict=make_verdict(*found, environment=environment))

        before = {signal.SIGINT, signal.SIGTERM}
        handlers = {number: signal.getsignal(number) for number in before}
        self._patch.setattr(self._nightly, "run_job", run_job)
        try:
            code = self._nightly.main(["--out", str(self._out), *words])
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        folders = [path for path in self._out.iterdir() if path.is_dir()]
        self.folder = max(folders, key=lambda path: path.stat().st_mtime_ns)
        return int(code)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def nights(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    return Nights(scripts, tmp_path / "nights", monkeypatch)


FAILED = make_run(
    Status.FAIL,
    findings=(make_finding(),),
    worst=Worst(phase="variable", variable="w", error_over_bound=1e5),
    setup={"target": "sgd-float32"},
)


@pytest.mark.sweep
def test_a_second_night_says_what_is_new(nights: Nights, capsys) -> None:
    assert nights.run({}) == 0
    shown = capsys.readouterr().out
    assert "night 1 of" in shown
    assert "new failure" not in shown
    assert nights.run({"sgd-float32": [FAILED]}) == 1
    shown = capsys.readouterr().out
    assert (
        "new failure: sgd-float32 mlp-adam-mwms:2-none [bounded]: pass -> fail: "
        "missing-reduction in reduced_gradient of dense/kernel" in shown
    )
    assert shown.count("new failure:") == 1
    assert nights.read("summary.txt") in shown
    verdict = verdict_from_json(nights.read("verdict.json"))
    assert verdict.status is Status.FAIL
    assert verdict.environment["machine"]["cores"] >= 1
    assert "devices" not in verdict.environment
    [suite] = ElementTree.fromstring(nights.read("junit.xml"))
    assert suite.get("failures") == "1"
    assert "missing-reduction" in nights.read("report.html")
    history = History(nights.folder.parent / "history.sqlite")
    assert [night.status for night in history.list_nights(5)] == ["pass", "fail"]
    assert nights.run({}) == 0
    assert "fixed: sgd-float32" in capsys.readouterr().out


@pytest.mark.sweep
def test_one_slow_run_is_nothing_new(nights: Nights, capsys) -> None:
    slow = make_run(seconds=90.0, setup=FAILED.setup)
    nights.run({})
    assert nights.run({"sgd-float32": [slow]}) == 0
    assert "slower" not in capsys.readouterr().out


@pytest.mark.sweep
def test_a_drift_is_told_before_anything_fails(nights: Nights, capsys) -> None:
    only = ("--only", "sgd-float32")
    for _ in range(6):
        nights.run({}, *only)
    worst = Worst(phase="variable", variable="w", error_over_bound=0.75)
    capsys.readouterr()
    near = make_run(worst=worst, setup=FAILED.setup)
    assert nights.run({"sgd-float32": [near]}, *only) == 0
    assert (
        "drift: sgd-float32 mlp-adam-mwms:2-none [bounded]: error/bound 0.75, 3 times "
        "what it was (0.25, median of 6)" in capsys.readouterr().out
    )


@pytest.mark.sweep
def test_a_night_in_part_is_held_against_the_last_run_of_each(
    nights: Nights, capsys
) -> None:
    nights.run({})
    nights.run({}, "--only", "adam-*")
    nights.run({"sgd-float32": [FAILED]}, "--only", "sgd-float32", "--only", "x")
    shown = capsys.readouterr().out
    assert "1 in both: 1 new failure" in shown


@pytest.mark.sweep
def test_known_failures_do_not_make_a_night_red(
    nights: Nights, tmp_path: Path, capsys
) -> None:
    entry = (
        "[known]\nscenario = mlp-*\ntarget = sgd-*\ncode = missing-reduction\n"
        "reason = upstream\nuntil = 9999-12-31\n"
    )
    (tmp_path / "q.ini").write_text(
        entry + entry.replace("known", "gone").replace("mlp", "x")
    )
    words = ("--quarantine", str(tmp_path / "q.ini"))
    assert nights.run({"sgd-float32": [FAILED]}, *words) == 0
    shown = capsys.readouterr().out
    assert "known: sgd-float32 mlp-adam-mwms:2-none [bounded]: fail" in shown
    assert "upstream" in nights.read("report.html")
    assert 'type="quarantined"' in nights.read("junit.xml")
    assert "quarantine: 'gone' fits no scenario (x-*): take it out" in shown
    other = make_finding(code="raises")
    worse = make_run(Status.FAIL, findings=(other,), setup=FAILED.setup)
    assert nights.run({"sgd-float32": [worse]}, *words) == 1
    assert "new failure: sgd-float32" in capsys.readouterr().out
    assert nights.run({}, "--only", "adam-*", *words) == 0
    assert "fits no scenario" not in capsys.readouterr().out  # it was not due


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("status", "code"),
    [("error", 3), ("undecidable", 4), ("skipped", 0), ("refused", 0)],
)
def test_the_night_ends_as_a_check_does(
    nights: Nights, capsys, status: str, code: int
) -> None:
    run = make_run(Status(status), message="need 2 GPUs, have 0", setup=FAILED.setup)
    assert nights.run({"sgd-float32": [run]}) == code
    assert "need 2 GPUs, have 0" in capsys.readouterr().out


def test_a_night_that_is_over_names_what_it_did_not_reach(
    nights: Nights, capsys
) -> None:
    assert nights.run({}, "--only", "sgd-float??", "--hours", "0") == 4
    assert "no time for: sgd-float32, sgd-float64, sgd-float16" in (
        capsys.readouterr().out
    )


def test_a_history_that_cannot_be_used_loses_no_report(nights: Nights, capsys) -> None:
    nights.folder.mkdir()
    (nights.folder / "history.sqlite").write_text("no database" * 100)
    assert nights.run({"sgd-float32": [FAILED]}) == 1
    assert nights.run({}) == 3
    assert "is no history, or is damaged" in capsys.readouterr().out
    assert verdict_from_json(nights.read("verdict.json"))


def test_nights_of_one_minute_have_folders_of_their_own(
    scripts: Any, tmp_path: Path
) -> None:
    now = datetime.datetime(2026, 3, 1, 3, 4).astimezone()
    made = [scripts["nightly"].make_folder(tmp_path, now).name for _ in range(3)]
    assert made == ["2026-03-01T0304", "2026-03-01T0304-2", "2026-03-01T0304-3"]


@pytest.mark.parametrize(
    ("now", "until", "hours"),
    [("22:30", "06:00", 7.5), ("05:00", "06:00", 1.0), ("06:00", "06:00", 24.0)],
)
def test_the_night_ends_when_the_clock_says_so(
    scripts: Any, now: str, until: str, hours: float
) -> None:
    clock = datetime.time.fromisoformat(now)
    begin = datetime.datetime.combine(datetime.date(2026, 3, 1), clock).astimezone()
    options = argparse.Namespace(hours=None, until=datetime.time.fromisoformat(until))
    end = scripts["nightly"].find_end(options, begin)
    assert (end - begin).total_seconds() == 3600 * hours


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "nothing"], "No job fits 'nothing'. There are"),
        (["--optimizer", "a.b"], "names no attribute"),
        (["--quarantine", "none.ini"], "cannot be read"),
        (["--window", "3"], "must be looked at"),
    ],
)
def test_bad_usage_is_told_before_anything_runs(
    nights: Nights, capsys, words: list[str], message: str
) -> None:
    with pytest.raises(FileNotFoundError):
        nights.run({}, *words)  # no folder was made
    assert message in capsys.readouterr().err


def test_jobs_are_listed(scripts: Any, capsys, tmp_path: Path) -> None:
    assert scripts["nightly"].main(["--list", "--out", str(tmp_path / "n")]) == 0
    lines = capsys.readouterr().out.splitlines()
    files = list((ROOT / "scenarios").glob("test_*.py"))
    assert sum("pytest scenarios/" in line for line in lines) == len(files)
    assert any(line.startswith("adam-float64 ") for line in lines)
    assert not (tmp_path / "n").exists()
