"""Scripts of real findings show the wrong number, and let the right program pass."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from script_checks import (
    FOLDER,
    TIMEOUT_S,
    check_scripts,
    name_other,
    read_numbers,
    run_script,
)

import distbench
from distbench.checking.check import check_target
from distbench.errors import BadInputError
from distbench.repro.case import pick_case, read_scenario
from distbench.shrink import make_start, name_options, shrink
from distbench.target import parse_target
from distbench.verdict import Status

pytestmark = pytest.mark.cluster


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
        pair(UNSUMMED, "subjects.py:make_adam", "mirrored:2", "large", marks=LONG),
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
            "repro_subjects.py:DoublesMomentum",
            "repro_subjects.py:MovesByHand",
            "mirrored:2",
            {},
            id="listed-before-what-it-moves",
        ),
        pytest.param(
            "repro_subjects.py:CountsTwice",
            "repro_subjects.py:TwoOptimizers",
            "mirrored:2",
            {},
            id="second-of-two-counters",
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


@pytest.mark.nightly
def test_what_a_script_writes_of_a_workload_is_the_workload():
    done = subprocess.run(
        [sys.executable, FOLDER / "repro_workloads.py"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
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
