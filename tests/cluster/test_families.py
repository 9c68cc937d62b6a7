"""Every family of optimizers is taken without being told which, and found wrong alike.

What each can be given (decay, averages, clips, XLA, a loss scale) is in the correct
programs of `distbench/unusual`, and more mistakes are in `distbench/faults`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.errors import BadInputError
from distbench.selftest.matrix import mark_cell
from distbench.selftest.run import plan_selftest, run_selftest
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
SUBJECTS = Path(__file__).with_name("family_subjects.py")


@pytest.mark.parametrize("cluster", [pytest.param("mirrored:2", marks=LONG), "mwms:2"])
@pytest.mark.parametrize("name", ["make_keras2_sgd", "make_keras3_sgd", "make_v1_sgd"])
def test_plain_descent_is_exact(name: str, cluster: str) -> None:
    verdict = distbench.check(f"{SUBJECTS}:{name}", cluster, workload="linear")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert [run.tier for run in verdict.runs] == ["exact", "bounded"]


@pytest.mark.parametrize("name", ["make_own_base", "make_of_text"])
def test_names_that_the_framework_has_too_decide_nothing(name: str) -> None:
    verdict = distbench.check(f"{SUBJECTS}:{name}", "mirrored:2", workload="linear")
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@LONG
@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("keras2-options", "mwms:2"),
        ("keras2-loss-scale", "mirrored:2"),
        ("keras3-options", "mirrored:2"),
        ("v1-many-rules", "mirrored:2"),
        ("keras3-layers", "mwms:2"),
    ],
)
def test_options_of_the_base_class_pass(name: str, cluster: str) -> None:
    (passed,) = run_selftest(plan_selftest([name], [cluster])).unusual
    assert passed.status is Status.PASS, passed.found


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("keras2-momentum-of-own-gradient", "mwms:2"),
        ("keras3-nobody-sums", "mwms:2"),
        ("keras3-momentum-of-own-gradient", "mirrored:2"),
        ("v1-momentum-of-own-gradient", "mwms:2"),
        ("v1-global-step-of-replicas", "mirrored:2"),
    ],
)
def test_a_mistake_is_named_in_every_family(name: str, cluster: str) -> None:
    (cell,) = run_selftest(plan_selftest([name], [cluster])).faults
    assert mark_cell(cell) == "ok", (cell.found, cell.explanation)


@LONG
def test_arguments_may_be_given_by_name_in_every_family() -> None:
    verdict = distbench.check(f"{SUBJECTS}:GivesArgumentsByName", "mwms:2")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    phases = {"local_gradient", "reduced_gradient", "applied_gradient"}
    assert phases < set(verdict.runs[0].references)


@LONG
def test_a_step_may_update_less_often_than_the_first_one() -> None:
    """TensorFlow takes no sum under a condition, which is what is to be told."""
    verdict = distbench.check(f"{SUBJECTS}:UpdatesLessOften", "mirrored:2")
    (finding,) = verdict.findings
    assert finding.code == "raises", describe_verdict(verdict)
    assert "control flow" in finding.explanation
    alone = distbench.check(f"{SUBJECTS}:UpdatesLessOften", "one")
    assert alone.status is Status.PASS, describe_verdict(alone)


@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        (
            "make_keras2_sgd",
            "aggregator",
            r"tf_keras\.optimizers\.Optimizer have no.*'aggregator'.*default, user",
        ),
        (
            "make_keras3_sgd",
            "user",
            r"keras\.optimizers\.Optimizer have no.*'user'.*default, clipvalue",
        ),
        (
            "make_v1_sgd",
            "clipnorm",
            r"v1\.train\.Optimizer have no.*default, user, none",
        ),
    ],
)
def test_a_path_that_a_family_lacks_names_those_it_has(
    name: str, path: str, words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        distbench.check(f"{SUBJECTS}:{name}", "one", path=path, workload="linear")


@LONG
def test_keras_3_clips_before_it_sums_and_its_own_sgd_shows_it() -> None:
    verdict = distbench.check(
        f"{SUBJECTS}:make_keras3_clipped",
        "mirrored:2",
        workload="linear",
        tier="bounded",
    )
    first = verdict.findings[0]
    found = (first.code, first.phase, first.replicas, first.origin)
    wanted = ("clip-before-reduction", "reduced_gradient", (0, 1), "framework")
    assert found == wanted, describe_verdict(verdict)


def test_what_an_option_makes_the_framework_refuse_is_refused() -> None:
    """Only the same option on the stock optimizer tells whose refusal it is."""
    verdict = distbench.check(
        f"{SUBJECTS}:make_keras3_average", "central:2", workload="linear", tier="exact"
    )
    assert {run.status for run in verdict.runs} == {Status.REFUSED}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("make_keras3_muon", "default"),
        ("make_v1_adam", "user"),
    ],
)
def test_what_a_stock_optimizer_itself_is_refused_is_refused(
    name: str, path: str
) -> None:
    """SGD, the control of most, decays otherwise, and has no powers to multiply."""
    verdict = distbench.check(
        f"{SUBJECTS}:{name}", "central:2", workload="linear", tier="bounded", path=path
    )
    assert {run.status for run in verdict.runs} == {Status.REFUSED}


@LONG
def test_a_rule_that_counts_in_python_while_it_is_traced_passes() -> None:
    """What one device makes of its own gradients again is no measure of the rule."""
    verdict = distbench.check(
        f"{SUBJECTS}:make_keras2_nadam", "mwms:2", workload="embedding", tier="bounded"
    )
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@LONG
def test_and_what_is_wrong_with_its_subclass_is_found() -> None:
    verdict = distbench.check(
        f"{SUBJECTS}:make_doubled_nadam", "mwms:2", workload="linear", tier="bounded"
    )
    first = verdict.findings[0]
    found = (first.code, first.phase, first.origin)
    assert found == ("scale-error", "slot", "subject"), describe_verdict(verdict)


def test_what_is_a_longer_step_alone_may_be_the_learning_rate() -> None:
    verdict = distbench.check(
        f"{SUBJECTS}:make_adam_with_own_schedule",
        "mirrored:2",
        workload="linear",
        tier="bounded",
    )
    first = verdict.findings[0]
    assert "or the learning rate is 2 times as large" in first.explanation


def test_a_schedule_of_the_users_own_leaves_a_control_that_runs() -> None:
    """Keras makes a string of it, and an optimizer that fails once it is used."""

    def step(path: str) -> str:
        import importlib.util

        import tensorflow as tf
        import tf_keras

        from distbench.worker.families import describe_control
        from distbench.worker.families.controls import make_control

        spec = importlib.util.spec_from_file_location("family_subjects", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        names = []
        for wrap in (lambda bare: bare, tf_keras.mixed_precision.LossScaleOptimizer):
            subject = wrap(module.make_adam_with_own_schedule())
            control = make_control(*describe_control(subject))
            control.apply_gradients([(tf.ones(2), tf.Variable([1.0, 2.0]))])
            names.append(type(control).__name__)
        return " and ".join(names)

    made = distbench.run(step, cluster="one", args=(str(SUBJECTS),))
    assert set(made.values()) == {"SGD and LossScaleOptimizer"}


def test_a_mean_of_a_sparse_gradient_is_divided_alike() -> None:
    """By a number that is a constant on one device alone, which must not be folded."""
    verdict = distbench.check(
        f"{SUBJECTS}:make_keras3_centred", workload="embedding", tier="bounded"
    )
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@LONG
def test_what_xla_joins_is_no_fault_in_the_exact_tier() -> None:
    verdict = distbench.check(
        "tf_keras.optimizers.legacy:Adam",
        "ps:1+1",
        workload="linear",
        tier="exact",
        jit=True,
    )
    assert verdict.status is Status.PASS, describe_verdict(verdict)


@LONG
def test_what_xla_joins_is_no_fault() -> None:
    """Here a slot comes out one rounding away from one device's."""
    verdict = distbench.check(
        "tf_keras.optimizers.legacy:Adadelta",
        "central:8",
        path="aggregator-two-stage",
        workload="linear",
        tier="bounded",
        jit=True,
    )
    assert verdict.status is not Status.FAIL, describe_verdict(verdict)
