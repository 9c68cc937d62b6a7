"""Scripts of real findings show the wrong number, and let the right program pass."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import distbench
from distbench.checking.checker import check_target
from distbench.errors import BadInputError
from distbench.repro.case import pick_case, read_scenario
from distbench.repro.script import write_script
from distbench.shrink import make_start, name_options, shrink
from distbench.target import parse_target
from distbench.verdict import Status, Verdict
from distbench.verdict.document import verdict_from_json, verdict_to_json

pytestmark = pytest.mark.cluster
FOLDER = Path(__file__).parent
_TIMEOUT_S = 300


def run_script(verdict: Verdict, folder: Path) -> tuple[int, str, str]:
    """Write and run the script, where nothing of the bench is on the path."""
    text = write_script(pick_case(verdict), verdict.environment)
    assert "import distbench" not in text
    assert text.count("\n") < 60
    file = folder / "shown.py"
    file.write_text(text)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    (folder / "scratch").mkdir(exist_ok=True)
    environment["TMPDIR"] = str(folder / "scratch")
    done = subprocess.run(
        [sys.executable, "-P", file],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=folder,
        env=environment,
    )
    assert not list((folder / "scratch").iterdir())  # such as files of AutoGraph
    return done.returncode, done.stdout, done.stderr


def name_other(verdict: Verdict, target: str) -> Verdict:
    """The same verdict, said of another subject."""
    document = json.loads(verdict_to_json(verdict))
    for run in document["runs"]:
        run["setup"]["target"] = target
    return verdict_from_json(json.dumps(document))


def read_numbers(printed: str) -> tuple[float, dict[int, float]]:
    one = re.search(r"on one device: (\S+)", printed)
    assert one is not None, printed
    many = re.findall(r"replica (\d+): (\S+),", printed)
    return float(one[1]), {int(replica): float(number) for replica, number in many}


def pair(wrong: str, right: str, cluster: str, workload: str | None = None, **more):
    return pytest.param(wrong, right, cluster, workload, **more)


LONG = pytest.mark.nightly  # each starts TensorFlow anew, several times
UNSUMMED = "subjects.py:make_identity_aggregator"


@pytest.mark.parametrize(
    ("wrong", "right", "cluster", "workload"),
    [
        pair(UNSUMMED, "subjects.py:make_adam", "mirrored:2", "linear"),
        pair(UNSUMMED, "subjects.py:make_sgd", "mwms:2", "embedding", marks=LONG),
        pair(UNSUMMED, "subjects.py:make_adam", "mirrored:2", "mlp", marks=LONG),
        pair(
            "subjects.py:LossNotDividedByGlobalBatch",
            "subjects.py:Program",
            "mwms:2",
            marks=LONG,
        ),
        pair(
            "subjects.py:ClippedBeforeReduction",
            "subjects.py:Program",
            "central:2",
            marks=LONG,
        ),
        pair(
            "keras_steps.py:make_not_reduced",
            "keras_models.py:make_dense",
            "mirrored:2",
            marks=LONG,
        ),
        pair(
            "repro_subjects.py:make_rate_by_strategy",
            "repro_subjects.py:make_rate",
            "ps:2+1",
            "linear",
            marks=LONG,
        ),
        pair(
            "family_subjects.py:make_keras3_clipped",
            "family_subjects.py:make_keras3_sgd",
            "mirrored:2",
            "linear",
            marks=LONG,
        ),
    ],
)
def test_the_wrong_number_is_shown_and_the_right_one_passes(
    wrong, right, cluster, workload, tmp_path
):
    verdict = distbench.check(f"{FOLDER / wrong}", cluster, workload=workload)
    assert verdict.status is Status.FAIL
    check_scripts(verdict, right, tmp_path)


def check_scripts(verdict: Verdict, right: str, folder: Path) -> None:
    """The script shows a verdict's numbers, and equal ones of a right subject."""
    case = pick_case(verdict)
    outcome, bound = case.outcome, case.bound
    code, printed, errors = run_script(verdict, folder)
    assert code == 1, printed + errors
    one, many = read_numbers(printed)
    assert abs(one - outcome.expected) <= bound
    assert set(many) == set(range(2 if case.spec.kind in ("mirrored", "mwms") else 1))
    if outcome.observed == outcome.observed:  # of a wrong start nothing was observed
        assert abs(many[outcome.replica] - outcome.observed) <= bound
    assert abs(many[outcome.replica] - one) > bound

    other = name_other(verdict, f"{FOLDER / right}")
    code, printed, errors = run_script(other, folder)
    assert code == 0, printed + errors
    one, many = read_numbers(printed)
    assert all(abs(number - one) <= bound for number in many.values())


SAVED = {"restore_from": "one"}


@LONG
@pytest.mark.parametrize(
    ("wrong", "right", "cluster", "options"),
    [
        pytest.param(
            "saved_programs.py:OptimizerForgotten",
            "saved_programs.py:SavedByItself",
            "mirrored:2",
            SAVED,
            id="checkpoint",
        ),
        pytest.param(
            "saved_programs.py:CounterForgotten",
            "saved_programs.py:SavedByItself",
            "mwms:2",
            SAVED,
            id="checkpoint-of-workers",
        ),
        pytest.param(
            "saved_programs.py:OptimizerForgotten",
            "saved_programs.py:SavedByItself",
            "ps:1+1",
            SAVED,
            id="checkpoint-of-servers",
        ),
        pytest.param(
            "saved_programs.py:RateForgotten",
            "saved_programs.py:Halved",
            "mirrored:2",
            {**SAVED, "restore_after": 1},
            id="checkpoint-over-other-state",
        ),
        pytest.param(
            "pipelines.py:RemainderOfMeans",
            "pipelines.py:Remainder",
            "mirrored:2",
            {},
            id="end-of-an-epoch",
        ),
        pytest.param(
            "pipelines.py:RemainderOfMeans",
            "pipelines.py:RemainderOfCounted",
            "mwms:2",
            {},
            id="end-of-an-epoch-of-workers",
        ),
        pytest.param(
            "repro_subjects.py:WeighsEight",
            "repro_subjects.py:WeighsExamples",
            "mirrored:2",
            {},
            id="smaller-batch",
        ),
        pytest.param(
            "shard_subjects.py:make_swapping",
            "shard_subjects.py:make_adam",
            "ps:1+2",
            {"partitioner": "max:8", "workload": "linear", "tier": "bounded"},
            id="shards",
        ),
        pytest.param(
            "shard_subjects.py:DividedByWorkers",
            "shard_subjects.py:Sharded",
            "ps:2+1",
            {"partitioner": "fixed:2"},
            id="shards-of-a-program",
        ),
    ],
)
def test_checkpoints_pipelines_and_shards_are_shown(
    wrong, right, cluster, options, tmp_path
):
    verdict = distbench.check(f"{FOLDER / wrong}", cluster, **options)
    assert verdict.status is Status.FAIL
    check_scripts(verdict, right, tmp_path)


@LONG
@pytest.mark.parametrize(
    ("wrong", "right", "again", "never"),
    [
        ("NotSharded", "Sharded", 24, 0),
        ("SwitchedOff", "Distributed", 24, 0),
        ("OneShardTooMany", "Shuffled", 0, 8),
        ("EndlesslyNotSharded", "Endless", 4096, 0),
        ("EndlesslyOneTooMany", "Endless", 0, 8),
    ],
)
def test_examples_are_counted_again(wrong, right, again, never, tmp_path):
    verdict = distbench.check(f"{FOLDER}/pipelines.py:{wrong}", "mwms:2", steps=2)
    code, printed, errors = run_script(verdict, tmp_path)
    assert code == 1, printed + errors
    assert f": {again} come again, {never} never come\n" in printed
    other = name_other(verdict, f"{FOLDER}/pipelines.py:{right}")
    code, printed, errors = run_script(other, tmp_path)
    assert code == 0, printed + errors
    assert ": 0 come again, 0 never come\n" in printed


@LONG
def test_a_pipeline_that_only_the_cluster_cannot_read_is_shown(tmp_path):
    subject = f"{FOLDER}/pipelines.py:FromTooFewFiles"
    verdict = distbench.check(subject, "mwms:3", tier="bounded")
    code, printed, errors = run_script(verdict, tmp_path)
    assert code == 1, errors
    assert "Could not apply FILE based sharding" in printed
    right = name_other(verdict, f"{FOLDER}/pipelines.py:FromUnevenFiles")
    code, printed, errors = run_script(right, tmp_path)
    assert (code, set(printed.splitlines())) == (0, {"nothing raises"}), errors


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("path", "workload"),
    [
        ("aggregator", "overflow"),
        ("aggregator-mean", "regularized"),
        ("aggregator-two-stage", "embedding"),
        ("user", "constrained"),
        ("transformers", "linear"),
        ("global-clipnorm", "regularized"),
    ],
)
def test_a_script_sums_as_the_path_does(path, workload, tmp_path):
    wrong, right = (
        f"{FOLDER / 'repro_subjects.py'}:{name}"
        for name in ("make_rate_by_strategy", "make_rate")
    )
    verdict = distbench.check(
        wrong, "mirrored:2", path=path, workload=workload, tier="bounded"
    )
    assert verdict.status is Status.FAIL
    assert run_script(verdict, tmp_path)[0] == 1
    code, printed, errors = run_script(name_other(verdict, right), tmp_path)
    assert code == 0, printed + errors
    one, _ = read_numbers(printed)
    assert abs(one - pick_case(verdict).outcome.expected) <= pick_case(verdict).bound


@LONG
def test_a_race_of_steps_in_flight_is_shown(tmp_path):
    wrong, right = (
        f"{FOLDER / 'repro_subjects.py'}:{name}"
        for name in ("make_read_then_assigned", "make_in_place")
    )
    verdict = distbench.check(wrong, "ps:2+1", in_flight=8)
    assert verdict.findings[0].code == "lost-update"
    code, printed, errors = run_script(verdict, tmp_path)
    assert code == 1, printed + errors
    wrong_count = re.search(r"wrong in (\d+) of (\d+) elements", printed)
    assert wrong_count is not None
    assert 0 < int(wrong_count[1]) <= int(wrong_count[2])
    code, printed, errors = run_script(name_other(verdict, right), tmp_path)
    assert code == 0, printed + errors
    assert "wrong in 0 of" in printed


@LONG
def test_what_only_the_cluster_raises_is_shown(tmp_path):
    subject = f"{FOLDER / 'subjects.py'}:RaisesOnSecondReplica"
    verdict = distbench.check(subject, "mirrored:2", tier="bounded")
    code, printed, errors = run_script(verdict, tmp_path)
    assert code == 1, errors
    assert "no slot on this replica" in printed
    right = name_other(verdict, f"{FOLDER / 'subjects.py'}:Program")
    code, printed, _ = run_script(right, tmp_path)
    assert (code, printed.strip()) == (0, "nothing raises")


@pytest.mark.nightly
def test_a_script_that_breaks_shows_no_finding(tmp_path):
    subject = f"{FOLDER / 'subjects.py'}:NobodyReduces"
    verdict = distbench.check(subject, "mirrored:2", tier="bounded")
    broken = name_other(verdict, f"{FOLDER / 'subjects.py'}:RaisesEverywhere")
    code, printed, errors = run_script(broken, tmp_path)
    assert code == 3
    assert printed == ""
    assert "broken from the start" in errors


def test_a_subject_of_the_running_process_cannot_be_shown():
    def make():
        import tf_keras

        return tf_keras.optimizers.legacy.SGD(
            0.1, gradient_aggregator=lambda pairs: pairs
        )

    verdict = distbench.check(make, "mirrored:2", workload="linear", tier="bounded")
    assert verdict.status is Status.FAIL
    with pytest.raises(BadInputError, match="handed over as an object"):
        pick_case(verdict)


def test_what_a_script_writes_of_a_workload_is_the_workload():
    done = subprocess.run(
        [sys.executable, FOLDER / "repro_workloads.py"],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal") == 28


@LONG
def test_the_smallest_scenario_shows_it_too(tmp_path):
    subject = f"{FOLDER / 'subjects.py'}:make_identity_aggregator"
    verdict = distbench.check(
        subject, "mirrored:3", workload="linear", tier="bounded", steps=2
    )
    run = verdict.runs[0]
    start = make_start(read_scenario(verdict, run), run)
    made = list(
        shrink(
            start,
            run.findings[0],
            lambda options: check_target(parse_target(subject), options),
            tries=4,
        )
    )
    assert [name_options(one.options) for one in made if one.shows] == [
        "mirrored:3, linear, bounded, 2 steps",
        "mirrored:2, linear, bounded, 2 steps",
        "mirrored:2, linear, bounded, 1 step",
        "mirrored:2, linear, bounded, 1 step, 2 examples",
    ]
    small = made[-1].verdict
    assert sum(small.runs[0].setup["split"]) == 2
    code, printed, errors = run_script(small, tmp_path)
    assert code == 1, printed + errors
