"""A compiled Keras model is a subject: Keras trains it, and its mistakes are found."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.trace import SHOWN
from distbench.trace.files import read_trace
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
FOLDER = Path(__file__).parent


def _check(name: str, cluster: str):
    return distbench.check(f"{FOLDER / name}", cluster)


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("keras_models.py:make_dense", "mwms:2"),
        ("keras_models.py:make_late", "mirrored:2"),
        ("keras_models.py:make_half", "mirrored:2"),
        ("keras_models.py:make_keras3", "mirrored:2"),
        ("keras_models.py:make_mean_penalty", "mirrored:2"),
        ("keras_models.py:many_inputs", "mwms:2"),
        ("keras_models.py:make_losses_of_examples", "mirrored:2"),
        ("keras_models.py:make_undescribed", "mirrored:2"),
        ("keras_models.py:many_inputs_keras3", "mirrored:2"),
        ("keras_models.py:one_constant", "mirrored:2"),
        ("keras_steps.py:make_share_of_mean", "mwms:2"),
        ("keras_statistics.py:make_before_statistics", "mirrored:2"),
        ("keras_models.py:make_dense", "ps:2+1"),
        ("keras_models.py:make_several_steps", "mirrored:2"),
        ("keras_models.py:make_several_steps", "ps:2+1"),
        ("keras_steps.py:make_keras3_share_of_mean", "mirrored:2"),
        ("keras_statistics.py:make_synchronised", "mwms:2"),
        ("keras_statistics.py:make_keras3_synchronised", "mirrored:2"),
    ],
)
def test_correct_models_pass(name: str, cluster: str) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    (run,) = verdict.runs
    assert run.tier == "bounded"
    assert {"loss", "reduced_gradient", "variable"} <= set(run.references)


@LONG
def test_a_step_that_one_device_leaves_out_alone_is_not_judged() -> None:
    verdict = _check("keras_models.py:make_keras3_half", "mirrored:2")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert "either the replicas' shares overflow or" in verdict.runs[0].message


@LONG
@pytest.mark.parametrize(
    "name", ["keras_steps.py:make_micro_steps", "keras_steps.py:make_adversaries"]
)
def test_of_several_losses_in_a_step_none_is_taken_for_the_replicas(name: str) -> None:
    verdict = _check(name, "mirrored:2")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert {"reduced_gradient", "variable"} <= set(verdict.runs[0].references)
    assert "loss" not in verdict.runs[0].references


@LONG
def test_a_later_update_of_a_step_goes_on_from_where_noise_led_the_first() -> None:
    """The global batch draws other noise, and its first update leads elsewhere."""
    right = _check("keras_gan.py:make_gan", "mirrored:2")
    assert right.status is Status.PASS, describe_verdict(right)
    assert "local_gradient" in right.runs[0].references
    wrong = _check("keras_gan.py:make_scaled_again", "mirrored:2")
    (finding,) = wrong.runs[0].findings
    assert (finding.code, finding.phase) == ("loss-scaled-twice", "local_gradient")
    assert len(finding.variables) == 8


@pytest.mark.parametrize(
    ("name", "cluster", "code", "phase", "variable", "origin"),
    [
        (
            "keras_steps.py:make_mean_of_shard",
            "mwms:2",
            "loss-not-scaled",
            "loss",
            "",
            "subject",
        ),
        (
            "keras_steps.py:make_whole_variances",
            "mirrored:2",
            "regularizer-not-scaled",
            "local_gradient",
            "noise",
            "subject",
        ),
        (
            "keras_steps.py:make_not_reduced",
            "mirrored:2",
            "missing-reduction",
            "reduced_gradient",
            "dense/kernel",
            "subject",
        ),
        (
            "keras_steps.py:make_own_metric_wrong",
            "mirrored:2",
            "metric-wrong",
            "loss",
            "own/count",
            "subject",
        ),
        (
            "keras_steps.py:make_keras3_mean_of_shard",
            "mirrored:2",
            "loss-not-scaled",
            "loss",
            "",
            "subject",
        ),
        (
            "keras_statistics.py:make_keras3_statistics",
            "mirrored:2",
            "statistics-not-synchronized",
            "variable",
            "sequential/batch_normalization/moving_mean",
            "framework",
        ),
        (
            "keras_statistics.py:make_keras3_own_statistics",
            "mirrored:2",
            "statistics-not-synchronized",
            "variable",
            "sequential/centred/mean",
            "subject",
        ),
        (
            "keras_models.py:make_keras3",
            "mwms:2",
            "raises",
            "first step",
            "",
            "framework",
        ),
        (
            "keras_models.py:make_summed_penalty",
            "mirrored:2",
            "loss-scaled-twice",
            "loss",
            "",
            "subject",
        ),
        (
            "keras_models.py:make_masked",
            "mirrored:2",
            "mean-of-means",
            "loss",
            "",
            "framework",
        ),
        (
            "keras_models.py:make_keras3_several_steps",
            "mirrored:2",
            "raises",
            "step",
            "",
            "framework",
        ),
        (
            "keras_models.py:make_rate_of_workers",
            "ps:2+1",
            "hyperparameter-differs",
            "slot",
            "learning_rate",
            "subject",
        ),
    ],
)
def test_mistakes_are_named(
    name: str, cluster: str, code: str, phase: str, variable: str, origin: str
) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.FAIL, describe_verdict(verdict)
    first = verdict.runs[0].findings[0]
    found = (first.code, first.phase, first.variable, first.origin)
    assert found == (code, phase, variable, origin), describe_verdict(verdict)


def test_the_loss_is_what_trains_whatever_a_step_tells_after_it() -> None:
    verdict = _check("keras_steps.py:make_another_loss_told", "mirrored:2")
    (finding,) = verdict.runs[0].findings
    assert (finding.code, finding.phase) == ("loss-not-scaled", "loss")
    assert finding.ratio == pytest.approx(2, rel=1e-3)


@LONG
def test_which_term_of_a_models_loss_is_wrong_is_told() -> None:
    """Keras tells its loss before a tape, by which a term is known, is asked."""
    verdict = _check("keras_models.py:make_penalty_divided_twice", "mirrored:2")
    (finding,) = verdict.runs[0].findings
    assert (finding.code, finding.phase) == ("loss-scaled-twice", "loss")
    assert "number 2 counts 1/N = 1/2 of what it should" in finding.explanation
    assert finding.confidence > 0.99


@LONG
def test_where_a_model_takes_the_own_examples_is_told_by_the_line() -> None:
    name = "keras_statistics.py:make_keras3_averaged_variances"
    first = _check(name, "mirrored:2").runs[0].findings[0]
    assert (first.code, first.phase) == ("statistics-not-synchronized", "loss")
    line = "`own = tf.reduce_mean((inputs - tf.reduce_mean(inputs, 0)) ** 2, 0)`"
    assert line in first.explanation


@LONG
@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("keras_compiled.py:make_compiled", "central:2"),
        ("keras_compiled.py:make_compiled_keras3", "central:2"),
        ("keras_compiled.py:make_compiled_keras3", "one"),
    ],
)
def test_a_step_that_xla_compiles_is_judged_by_what_it_leaves(
    name: str, cluster: str
) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    (run,) = verdict.runs
    assert set(run.references) == {"slot", "variable", "iterations"}
    assert "XLA compiles the step as a whole" in run.message


@LONG
def test_no_fault_is_asked_for_that_xla_leaves_no_room_for() -> None:
    verdict = _check("keras_compiled.py:make_compiled_scaled", "one")
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@LONG
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        (
            "keras_compiled.py:make_compiled_wrong",
            "loss-not-scaled",
            "each replica's loss is N = 2",
        ),
        (
            "keras_compiled.py:make_compiled_otherwise",
            "unexplained",
            "wrong where XLA compiles the step",
        ),
    ],
)
def test_what_is_wrong_with_it_is_looked_for_without_xla(
    name: str, code: str, words: str, tmp_path: Path
) -> None:
    (run,) = distbench.check(f"{FOLDER / name}", "central:2", keep=tmp_path).runs
    assert run.findings[0].code == code
    assert words in run.findings[0].explanation
    assert run.setup["jit"] == (None if code == "unexplained" else False)
    (kept,) = tmp_path.rglob("observed/trace.json")
    keys = read_trace(kept.parent, "trace").values
    phases = {key.phase for key in keys if not key.variable.startswith(SHOWN)}
    assert ("loss" in phases) == (code != "unexplained")  # of the run that is told


@LONG
@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2", "ps:2+1"])
def test_on_cpus_xla_itself_refuses_replicas(cluster: str) -> None:
    verdict = _check("keras_compiled.py:make_compiled", cluster)
    assert {run.status for run in verdict.runs} == {Status.REFUSED}
    passed = distbench.check(
        f"{FOLDER}/keras_compiled.py:make_compiled", cluster, jit=False
    )
    assert passed.status is Status.PASS, describe_verdict(passed)


@LONG
@pytest.mark.parametrize(
    "name", ["keras_steps.py:make_asserting", "keras_steps.py:make_raising"]
)
def test_what_a_step_raises_on_parameter_servers_is_its_own(name: str) -> None:
    """As a graph is made, and as it runs on a worker: a stock model does not."""
    (found,) = _check(name, "ps:2+1").findings
    assert (found.code, found.origin) == ("raises", "subject")
    assert "keras_steps.py" in found.explanation


@LONG
def test_the_smaller_batch_that_ends_an_epoch_is_keras_doing() -> None:
    """With three examples on two replicas; all before it are even."""
    target = f"{FOLDER}/keras_models.py:make_shrinking"
    (run,) = distbench.check(target, "mirrored:2", split=(2, 2)).runs
    first = run.findings[0]
    found = (first.code, first.phase, first.step, first.origin)
    assert found == ("mean-of-means", "loss", 2, "framework"), run
    passed = distbench.check(target, "mirrored:2")
    assert passed.status is Status.PASS, describe_verdict(passed)
    assert "step 2 has 1 + 1 examples" in passed.runs[0].message
    assert "1 of 11 examples are left out" in passed.runs[0].message


@LONG
def test_uneven_shards_are_weighed_alike_by_keras() -> None:
    verdict = distbench.check(
        f"{FOLDER}/keras_models.py:make_late", "mirrored:2", split=(5, 4)
    )
    first = verdict.runs[0].findings[0]
    found = (first.code, first.phase, first.origin)
    assert found == ("mean-of-means", "loss", "framework"), describe_verdict(verdict)


@LONG
def test_how_a_step_of_the_users_own_divides_is_not_keras_doing() -> None:
    verdict = distbench.check(
        f"{FOLDER}/keras_steps.py:make_share_of_mean", "mirrored:2", split=(5, 4)
    )
    first = verdict.runs[0].findings[0]
    found = (first.code, first.phase, first.origin)
    assert found == ("mean-of-means", "loss", "subject"), describe_verdict(verdict)


def test_a_split_that_keras_would_not_make_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"Expected the split \(5, 4\)"):
        distbench.check(
            f"{FOLDER}/keras_models.py:make_late", "mirrored:2", split=(6, 3)
        )


def test_a_model_of_the_running_process_takes_its_data_along() -> None:
    def make():
        import tf_keras as keras

        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def data(step):
        import numpy as np

        rng = np.random.default_rng(step)
        return rng.normal(size=(8, 2)), rng.normal(size=(8, 1))

    make.data = data
    verdict = distbench.check(make, "mirrored:2")
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("keras_models.py:make_eager", "run_eagerly=True"),
        ("keras_models.py:make_uncompiled", "not compiled with an optimizer"),
    ],
)
def test_models_that_cannot_be_trained_are_refused(name: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        _check(name, "mirrored:2")
