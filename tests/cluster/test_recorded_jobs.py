"""Jobs of users' own, recorded where they run and compared offline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import distbench
from distbench.cli import app
from distbench.compare.recorded.offline import compare_traces
from distbench.errors import BadInputError
from distbench.trace import INITIAL, PHASES, Trace
from distbench.trace.folder import read_folder

pytestmark = pytest.mark.cluster
JOBS = Path(__file__).with_name("recorded_jobs.py")
FAMILIES = ("legacy", "keras2")
RARE = ("keras3", "v1", "scaled")
DIGESTED = ("legacy+digests", "legacy-none+digests")
PER_REPLICA = [phase for phase in PHASES if phase != "iterations"]


def run_jobs(devices: int, folder: Path, *names: str) -> str:
    """Run the script as a user would; returns what it printed."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    done = subprocess.run(
        [sys.executable, str(JOBS), str(devices), str(folder), *names],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=JOBS.parents[2],
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


Recorded = Callable[[int, str], Path]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The trace of a job on so many devices; each is run when one asks for it first."""
    base = tmp_path_factory.mktemp("recorded")

    @cache
    def record(devices: int, name: str) -> Path:
        run_jobs(devices, base / str(devices), name)
        return base / str(devices) / name

    return record


def check_alike(two: Path, one: Path) -> None:
    """The traces of two replicas and of one device tell of the same training."""
    trace = read_folder(two)
    assert trace.replicas == 2
    for replica in range(2):
        for phase in PER_REPLICA:
            values = list(trace.select(step=2, phase=phase, replica=replica))
            assert values, (phase, replica)
    assert list(trace.select(step=INITIAL, phase="slot"))
    done = diff(two, one)
    assert done.exit_code == 0, done.output
    assert "Equal but for rounding" in done.output


def diff(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["trace", "diff", *map(str, arguments)])


@pytest.mark.nightly
def test_recording_leaves_every_bit_as_it_is(tmp_path: Path) -> None:
    names = (*FAMILIES, *RARE, "legacy-mean", "noisy")
    digests: dict[str, list[str]] = json.loads(run_jobs(2, tmp_path / "two", *names))
    assert list(digests) == list(names)
    for name, (alone, recorded) in digests.items():
        assert recorded == alone, name
    # What is compared tells a mean from a sum.
    assert digests["legacy"][0] != digests["legacy-mean"][0]
    run_jobs(1, tmp_path / "one", *RARE)
    for name in RARE:
        check_alike(tmp_path / "two" / name, tmp_path / "one" / name)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_replicas_agree_with_one_device(family: str, recorded: Recorded) -> None:
    check_alike(recorded(2, family), recorded(1, family))


@pytest.mark.parametrize(
    ("name", "words", "ratio"),
    [
        ("legacy-mean", "the mean of what the replicas computed", 0.5),
        ("legacy-none", "what the replica computed by itself, not reduced", None),
    ],
)
def test_a_wrong_reduction_is_the_first_difference(
    name: str, words: str, ratio: float | None, recorded: Recorded
) -> None:
    wrong, right = recorded(2, name), recorded(1, "legacy")
    done = diff(wrong, right)
    assert done.exit_code == 1
    assert "First difference: step 0, reduced_gradient" in done.output
    assert f"In A it is {words}." in done.output
    comparison = compare_traces(read_folder(wrong), read_folder(right))
    assert comparison.first is not None
    if ratio is None:
        assert comparison.drifting["A"].step == 0
    else:
        assert comparison.first.likeness.ratio == pytest.approx(ratio)
        assert not comparison.drifting


@pytest.mark.nightly
def test_digests_say_where_bits_differ_first(tmp_path: Path) -> None:
    for alone, recorded in json.loads(
        run_jobs(2, tmp_path, *DIGESTED, "legacy")
    ).values():
        assert recorded == alone
    right, wrong = (tmp_path / name for name in DIGESTED)
    done = diff(wrong, right)
    assert done.exit_code == 1
    assert "First difference: step 0, reduced_gradient of" in done.output
    assert "other bits." in done.output
    assert "replicas of A hold other values" in done.output
    assert "replicas of B hold other values" not in done.output
    # Of the whole step, as with numbers.
    trace, numbers = read_folder(right), read_folder(tmp_path / "legacy")
    assert set(trace.values) == set(numbers.values)
    for key, value in trace.values.items():
        assert isinstance(value, np.ndarray)
        if key.phase == "loss":
            np.testing.assert_array_equal(value, numbers.values[key])
        else:
            assert (value.dtype, value.shape) == (np.uint8, (8,))
    refused = diff(right, tmp_path / "legacy")
    assert refused.exit_code == 2
    assert "digests of 2 replicas and numbers of 2 replicas" in refused.output


@pytest.mark.nightly
def test_what_the_outcome_undoes_is_no_difference(recorded: Recorded) -> None:
    """Each replica's own mean, averaged: twice the gradient, and half of the sum."""
    averaged, right = recorded(2, "legacy-own-mean"), recorded(1, "legacy")
    done = diff(averaged, right, "--phase", "variable")
    assert done.exit_code == 0, done.output
    whole = diff(averaged, right)
    # The loss that the script reports is another number all the same.
    assert "First difference: step 0, loss of 'loss'" in whole.output
    assert "different, undone" in whole.output


@pytest.mark.nightly
def test_what_cannot_be_recorded_is_told(tmp_path: Path) -> None:
    said = json.loads(run_jobs(2, tmp_path, "refusals"))
    assert set(said) == {
        *("traced-legacy", "traced-v1", "loop", "jit", "nothing", "folder"),
        *("loss", "optimizer", "strategy", "copies", "later"),
    }
    for name in ("copies", "later"):
        assert "has 1 replica (None is one device), and '" in said[name]
        assert "has copies on 2" in said[name]
    assert "A step was made that was not seen" in said["traced-legacy"]
    for name in ("traced-legacy", "traced-v1", "nothing"):
        assert "before the first call of the train function" in said[name]
    assert "2 times" in said["loop"]
    assert "jit_compile" in said["jit"]
    assert "holds a trace of worker-0 already" in said["folder"]
    assert "Received: {'loss': 1.0}" in said["loss"]
    assert "an object of type 'str'" in said["strategy"]


@pytest.mark.nightly
def test_a_job_goes_on_where_its_trace_cannot_be_written(tmp_path: Path) -> None:
    found = json.loads(run_jobs(2, tmp_path, "lost"))
    (said,) = found["said"]
    assert "could not write step 1 to" in said
    assert "the job goes on" in said
    assert found["recorded"] == [0]
    alone, recorded = found["ended"]
    assert recorded == alone


@pytest.mark.nightly
def test_loops_of_other_kinds_are_recorded(tmp_path: Path) -> None:
    run_jobs(2, tmp_path, "odd")
    found = {path.name: read_folder(path) for path in tmp_path.iterdir()}
    assert list_steps(found["died"]) == {INITIAL, 0}
    assert list_steps(found["two"]) == {INITIAL, 0, 2, 4}
    assert len([v for v in found["two"].variables if v.role == "iterations"]) == 2
    told = dict(found["two"].select(phase="loss", variable="number"))
    assert {key.step: float(v) for key, v in told.items()} == {0: 0, 2: 2, 4: 4}
    for name in ("eager", "nested", "fit-keras3", "fit-keras2"):
        trace = found[name]
        for phase in PHASES:
            assert list(trace.select(step=1, phase=phase)), (name, phase)
    # Op by op and in a function, a job makes the same steps.
    comparison = compare_traces(found["eager"], found["nested"])
    assert comparison.first is None
    assert len(comparison.places) > 50


def list_steps(trace: Trace) -> set[int]:
    return {key.step for key in trace.values}


def train_on_workers(folder: str, jobs: str, *names: str) -> None:
    import sys

    sys.path.insert(0, jobs)
    import recorded_jobs
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    for name in names:
        recorded_jobs.train(strategy, name, Path(folder) / name)


def test_workers_write_the_parts_of_one_trace(
    tmp_path: Path, recorded: Recorded
) -> None:
    names = ("legacy", "legacy-mean")
    arguments = (str(tmp_path), str(JOBS.parent), *names)
    distbench.run(train_on_workers, "mwms:2", args=arguments)
    trace = read_folder(tmp_path / "legacy")
    assert {key.replica for key in trace.values} == {0, 1}
    assert np.ptp([len(list(trace.select(replica=r))) for r in range(2)]) == 0
    right = diff(tmp_path / "legacy", recorded(1, "legacy"))
    assert right.exit_code == 0, right.output
    wrong = diff(tmp_path / "legacy-mean", recorded(1, "legacy"))
    assert wrong.exit_code == 1
    assert "the mean of what the replicas computed" in wrong.output


def schedule_steps(folder: str, jobs: str) -> str | None:
    import sys

    sys.path.insert(0, jobs)
    import recorded_jobs
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        return None
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    job = recorded_jobs.Job(strategy)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    def schedule(step: int) -> None:
        batch = tf.nest.map_structure(tf.constant, recorded_jobs.read_batch(step))
        coordinator.schedule(job.train, args=(batch,))
        coordinator.join()

    with distbench.record(strategy, job.optimizer, folder=folder) as recorder:
        for step in range(recorded_jobs.STEPS):
            with recorder.step():
                schedule(step)
    try:
        with distbench.record(strategy, job.optimizer, folder=f"{folder}-2"):
            schedule(0)
    except BadInputError as error:
        return str(error)
    return ""


def test_a_coordinator_says_what_a_step_is(tmp_path: Path, recorded: Recorded) -> None:
    folder = tmp_path / "run"
    results = distbench.run(
        schedule_steps, "ps:1+1", args=(str(folder), str(JOBS.parent))
    )
    assert "recorder.step()" in results["chief", 0]
    trace = read_folder(folder)
    assert list_steps(trace) == {INITIAL, 0, 1, 2}
    done = diff(folder, recorded(1, "legacy"))
    assert done.exit_code == 0, done.output
