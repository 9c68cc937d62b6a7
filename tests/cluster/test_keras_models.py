"""A compiled Keras model is a subject: Keras trains it, and its mistakes are found."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
MODELS = Path(__file__).with_name("keras_models.py")


def _check(name: str, cluster: str):
    return distbench.check(f"{MODELS}:{name}", cluster)


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("make_dense", "mwms:2"),
        pytest.param("make_late", "mirrored:2", marks=LONG),
        ("make_keras3", "mirrored:2"),
        pytest.param("many_inputs", "mwms:2", marks=LONG),
        pytest.param("make_losses_of_examples", "mirrored:2", marks=LONG),
        pytest.param("make_undescribed", "mirrored:2", marks=LONG),
        ("many_inputs_keras3", "mirrored:2"),
        ("make_share_of_mean", "mwms:2"),
        ("make_before_statistics", "mirrored:2"),
        ("make_dense", "ps:2+1"),
        ("make_several_steps", "mirrored:2"),
        pytest.param("make_several_steps", "ps:2+1", marks=LONG),
        ("make_keras3_share_of_mean", "mirrored:2"),
        pytest.param("make_synchronised", "mwms:2", marks=LONG),
        pytest.param("make_keras3_synchronised", "mirrored:2", marks=LONG),
    ],
)
def test_correct_models_pass(name: str, cluster: str) -> None:
    verdict = _check(name, cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    (run,) = verdict.runs
    assert run.tier == "bounded"
    assert {"loss", "reduced_gradient", "variable"} <= set(run.references)


@pytest.mark.parametrize("name", ["make_micro_steps", "make_adversaries"])
def test_of_several_losses_in_a_step_none_is_taken_for_the_replicas(name: str) -> None:
    verdict = _check(name, "mirrored:2")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert {"reduced_gradient", "variable"} <= set(verdict.runs[0].references)
    assert "loss" not in verdict.runs[0].references


def test_a_later_update_of_a_step_goes_on_from_where_noise_led_the_first() -> None:
    """The global batch draws other noise, and its first update leads elsewhere."""
    gan = MODELS.with_name("keras_gan.py")
    right = distbench.check(f"{gan}:make_gan", "mirrored:2")
    assert right.status is Status.PASS, describe_verdict(right)
    assert "local_gradient" in right.runs[0].references
    wrong = distbench.check(f"{gan}:make_scaled_again", "mirrored:2")
    (finding,) = wrong.runs[0].findings
    assert (finding.code, finding.phase) == ("loss-scaled-twice", "local_gradient")
    assert len(finding.variables) == 8


@pytest.mark.parametrize(
    ("name", "cluster", "code", "phase", "variable", "origin"),
    [
        ("make_mean_of_shard", "mwms:2", "loss-not-scaled", "loss", "", "subject"),
        pytest.param(
            "make_not_reduced",
            "mirrored:2",
            "missing-reduction",
            "reduced_gradient",
            "dense/kernel",
            "subject",
            marks=LONG,
        ),
        (
            "make_own_metric_wrong",
            "mirrored:2",
            "metric-wrong",
            "loss",
            "own/count",
            "subject",
        ),
        pytest.param(
            "make_keras3_mean_of_shard",
            "mirrored:2",
            "loss-not-scaled",
            "loss",
            "",
            "subject",
            marks=LONG,
        ),
        pytest.param(
            "make_keras3_statistics",
            "mirrored:2",
            "statistics-not-synchronized",
            "variable",
            "sequential/batch_normalization/moving_mean",
            "framework",
            marks=LONG,
        ),
        (
            "make_keras3_own_statistics",
            "mirrored:2",
            "statistics-not-synchronized",
            "variable",
            "sequential/centred/mean",
            "subject",
        ),
        ("make_keras3", "mwms:2", "raises", "first step", "", "framework"),
        (
            "make_summed_penalty",
            "mirrored:2",
            "loss-scaled-twice",
            "loss",
            "",
            "subject",
        ),
        ("make_masked", "mirrored:2", "mean-of-means", "loss", "", "framework"),
        pytest.param(
            "make_keras3_several_steps",
            "mirrored:2",
            "raises",
            "step",
            "",
            "framework",
            marks=LONG,
        ),
        (
            "make_rate_of_workers",
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


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("make_compiled", "central:2"),
        pytest.param("make_compiled_keras3", "central:2", marks=LONG),
        pytest.param("make_compiled_keras3", "one", marks=LONG),
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
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("make_compiled_wrong", "loss-not-scaled", "each replica's loss is N = 2"),
        ("make_compiled_otherwise", "unexplained", "wrong where XLA compiles the step"),
    ],
)
def test_what_is_wrong_with_it_is_looked_for_without_xla(
    name: str, code: str, words: str
) -> None:
    (run,) = _check(name, "central:2").runs
    assert run.findings[0].code == code
    assert words in run.findings[0].explanation
    assert run.setup["jit"] == (None if code == "unexplained" else False)


@LONG
@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2", "ps:2+1"])
def test_on_cpus_xla_itself_refuses_replicas(cluster: str) -> None:
    verdict = _check("make_compiled", cluster)
    assert {run.status for run in verdict.runs} == {Status.REFUSED}
    passed = distbench.check(f"{MODELS}:make_compiled", cluster, jit=False)
    assert passed.status is Status.PASS, describe_verdict(passed)


@LONG
@pytest.mark.parametrize("name", ["make_asserting", "make_raising"])
def test_what_a_step_raises_on_parameter_servers_is_its_own(name: str) -> None:
    """As a graph is made, and as it runs on a worker: a stock model does not."""
    (found,) = _check(name, "ps:2+1").findings
    assert (found.code, found.origin) == ("raises", "subject")
    assert "keras_models.py" in found.explanation


@LONG
def test_the_smaller_batch_that_ends_an_epoch_is_keras_doing() -> None:
    """With three examples on two replicas; all before it are even."""
    target = f"{MODELS}:make_shrinking"
    (run,) = distbench.check(target, "mirrored:2", split=(2, 2)).runs
    first = run.findings[0]
    found = (first.code, first.phase, first.step, first.origin)
    assert found == ("mean-of-means", "loss", 2, "framework"), run
    passed = distbench.check(target, "mirrored:2")
    assert passed.status is Status.PASS, describe_verdict(passed)
    assert "step 2 has 1 + 1 examples" in passed.runs[0].message
    assert "1 of 11 examples are left out" in passed.runs[0].message


@pytest.mark.nightly
def test_uneven_shards_are_weighed_alike_by_keras() -> None:
    verdict = distbench.check(f"{MODELS}:make_late", "mirrored:2", split=(5, 4))
    first = verdict.runs[0].findings[0]
    found = (first.code, first.phase, first.origin)
    assert found == ("mean-of-means", "loss", "framework"), describe_verdict(verdict)


@LONG
def test_how_a_step_of_the_users_own_divides_is_not_keras_doing() -> None:
    verdict = distbench.check(
        f"{MODELS}:make_share_of_mean", "mirrored:2", split=(5, 4)
    )
    first = verdict.runs[0].findings[0]
    found = (first.code, first.phase, first.origin)
    assert found == ("mean-of-means", "loss", "subject"), describe_verdict(verdict)


def test_a_split_that_keras_would_not_make_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"Expected the split \(5, 4\)"):
        distbench.check(f"{MODELS}:make_late", "mirrored:2", split=(6, 3))


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
        ("make_eager", "run_eagerly=True"),
        ("make_uncompiled", "not compiled with an optimizer"),
    ],
)
def test_models_that_cannot_be_trained_are_refused(name: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        _check(name, "mirrored:2")
