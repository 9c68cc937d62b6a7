"""Gradients of means, which an average makes right, and mistakes beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_apart, change_evidence
from gradient_values import add_up, clip_all, clip_norm, map_values, scale, to_array
from grouped_losses import SHARDS, against_the_others, by_statistics, sum_squares
from grouped_training import Simulator
from hidden_sums import WAYS, feed, feed_combined, hide_sums
from planted_case import check_passed
from simulated_rule import Rule
from training_simulator import KERNEL, Fault, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Status

RULE = Rule(name="momentum")
N = 3
UNEVEN = (7, 5, 3)


def map_all(change):
    return lambda gradients: {path: change(value) for path, value in gradients.items()}


def clip(value):
    return clip_norm(value, 0.3)


def average(own):
    return map_all(lambda value: scale(value, 1 / N))(add_up(own))


def average_clipped(own):
    return average([map_all(clip)(gradients) for gradients in own])


def average_two(own):
    return average([own[0], own[2]])


def observe_means(combine, alone=clip, **setup):
    """Each replica's loss and gradient are those of its own mean."""
    return observe(
        Fault(
            scale=lambda r, run: float(N),
            reduce=lambda own, step: _give_all(combine(own)),
        ),
        alone=map_all(alone),
        replicas=N,
        shards=(5, 5, 5),
        shards_known=False,
        loss_reduction="mean",
        rule=RULE,
        **setup,
    )


def _give_all(combined):
    return combined if isinstance(combined, list) else [combined] * N


def keep(value):
    return value


def test_signs_of_the_gradients_of_one_variable_are_all_that_is_told():
    """They are as large of an N-fold gradient: nothing tells that from a share."""

    def take_signs(gradients, replica, step):
        return {**gradients, KERNEL: map_values(gradients[KERNEL], np.sign)}

    fault = Fault(
        scale=lambda r, run: float(N),
        local=take_signs,
        reduce=lambda own, step: _give_all(average(own)),
    )
    setup = {"shards_known": False, "loss_reduction": "mean", "sparse": False}
    evidence = observe(fault, replicas=N, shards=(5, 5, 5), rule=RULE, **setup)
    (finding,) = judge(evidence).findings
    assert finding.code == "nonlinear-before-reduction"
    assert "by its sign" in finding.explanation


CASES = pytest.mark.parametrize(
    ("combine", "alone", "code", "replicas"),
    [
        (average_two, keep, "replica-dropped", (1,)),
        (average_clipped, clip, "clip-before-reduction", (0, 1, 2)),
    ],
    ids=["dropped", "clipped"],
)


@CASES
def test_what_is_wrong_with_an_average_is_told(combine, alone, code, replicas):
    (finding,) = judge(observe_means(combine, alone)).findings
    assert (finding.code, finding.phase) == (code, "reduced_gradient")
    assert finding.replicas == replicas


@CASES
@pytest.mark.first(1)
def test_the_same_of_an_average_that_nobody_saw(combine, alone, code, replicas):
    hidden = hide_sums(observe_means(combine, alone, sparse=False))
    sums = tuple(feed(hidden, way, RULE, map_all(alone)) for way in WAYS)
    (finding,) = judge(change_evidence(hidden, sums=sums)).findings
    assert (finding.code, finding.replicas) == (code, replicas)


def average_each(change):
    return lambda own: average([change(gradients) for gradients in own])


def clip_last(own):
    return average([*own[:-1], map_all(clip)(own[-1])])


def clip_groups(gradients):
    """Two joint norms, each of every other variable, are clipped to 0.3."""
    names = sorted(gradients)
    groups = [{p: gradients[p] for p in some} for some in (names[::2], names[1::2])]
    return {p: v for group in groups for p, v in clip_all(group, 0.3).items()}


def set_norm(value):
    return scale(value, 0.3 / np.linalg.norm(to_array(value)))


@pytest.mark.parametrize(
    ("combine", "words"),
    [
        (
            average_clipped,
            "gradient to 0.3 before the replicas' gradients are averaged",
        ),
        (clip_last, "2 alone clips the norm of each variable's gradient to 0.3 before"),
        (clip_last, "the replicas' gradients are averaged"),
        (average_each(clip_groups), "to 0.3 and the joint norm of "),
        (average_each(map_all(set_norm)), "gradient to 0.3 before the replicas'"),
        (average_each(map_all(np.tanh)), "hyperbolicus of its gradient; these are av"),
        (average_each(map_all(np.sign)), "replaces its gradient by its sign ("),
        (
            lambda own: [map_all(lambda v: clip_norm(v, 2.5))(g) for g in own],
            "clips the norm of each variable's gradient to 2.5 and goes on with what",
        ),
        (lambda own: own[0], "lacks the gradient of replicas 1, 2 ("),
        (average_two, "lacks the gradient of replica 1 ("),
        (
            lambda own: map_all(lambda v: scale(v, 1 / 2))(add_up(own[1:])),
            "lacks the gradient of replica 0, scaled to make up for it",
        ),
    ],
    ids=[
        "all",
        "some",
        "joined",
        "groups",
        "unit",
        "tanh",
        "sign",
        "own",
        "one",
        "two",
        "half",
    ],
)
def test_numbers_of_the_own_gradients_are_told(combine, words):
    """They are N times the shares that a wrong average is explained by."""
    (finding,) = judge(observe_means(combine, keep, sparse=False)).findings
    assert words in finding.explanation


def test_a_sum_of_such_gradients_is_a_loss_that_is_not_scaled():
    (finding,) = judge(observe_means(add_up, keep)).findings
    assert (finding.code, finding.phase) == ("loss-not-scaled", "local_gradient")


def test_a_right_average_passes():
    check_passed(judge(observe_means(average, keep)))


def observe_uneven(declared, **fault):
    """Means over shards of several sizes, which the replicas average."""
    return observe(
        Fault(reduce=lambda own, step: [average(own)] * N, **fault),
        replicas=N,
        shards=UNEVEN,
        shards_known=False,
        loss_reduction=declared,
        rule=RULE,
    )


@pytest.mark.parametrize("declared", ["mean", None])
def test_an_average_of_uneven_means_is_one_mistake(declared):
    evidence = observe_uneven(declared, scale=lambda r, run: sum(UNEVEN) / UNEVEN[r])
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("mean-of-means", "loss")


@pytest.mark.parametrize("declared", ["sum", None])
def test_losses_that_add_up_are_right_beside_averaged_means(declared):
    evidence = observe_uneven(
        declared,
        # The gradient is that of the own mean, and the loss is shown as a share.
        local=lambda gradients, r, step: map_all(
            lambda value: scale(value, sum(UNEVEN) / UNEVEN[r])
        )(gradients),
    )
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("mean-of-means", "local_gradient")


def average_all(parts, _):
    return sum(parts) / np.float32(len(parts))


def times_replicas(*_):
    return float(len(SHARDS))


SPLIT = pytest.mark.parametrize(
    ("compute", "options"),
    [
        (by_statistics, {}),
        (against_the_others, {}),
        (sum_squares, {"scatter": 0.3}),
        (sum_squares, {"dropped": 0.3}),
    ],
    ids=["statistics", "negatives", "scatter", "dropout"],
)


@SPLIT
@pytest.mark.parametrize("declared", ["mean", None])
def test_an_average_of_n_times_the_shares_passes_however_they_are_grouped(
    compute, options, declared
):
    simulator = Simulator(compute, times_replicas, average_all, **options)
    judgement = judge(declare(simulator.make_evidence(), declared))
    assert judgement.status is Status.PASS, judgement


@pytest.mark.parametrize(
    ("reduce", "codes"),
    [(average_all, []), (lambda parts, replica: parts[replica], ["missing-reduction"])],
    ids=["averaged", "own"],
)
def test_an_average_that_nobody_saw_tells_what_follows(reduce, codes):
    """The whole batch is no measure, and shares add up to the mean of the gradients."""
    simulator = Simulator(by_statistics, times_replicas, reduce)
    hidden = hide_sums(declare(simulator.make_evidence(), "mean"))
    fed = {
        "due": feed_combined(hidden, add_up, Rule(), keep),
        "mean": feed(hidden, "mean", Rule(), keep),
        "sums": tuple(feed(hidden, way, Rule(), keep) for way in WAYS),
    }
    judgement = judge(change_evidence(hidden, **fed))
    assert [f.code for f in judgement.findings] == codes
    assert judgement.status is (Status.FAIL if codes else Status.PASS)


@SPLIT
def test_an_average_of_shares_that_add_up_is_too_small(compute, options):
    simulator = Simulator(compute, reduce=average_all, **options)
    first = judge(declare(simulator.make_evidence(), "sum")).findings[0]
    assert (first.code, first.phase) == ("mean-instead-of-sum", "reduced_gradient")


def declare(evidence, how):
    return replace(evidence, subject=replace(evidence.subject, loss_reduction=how))


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (lambda r: sum(UNEVEN) / UNEVEN[r], [("loss-not-scaled", "loss")]),
        (lambda r: N, [("loss-not-scaled", "local_gradient")]),
    ],
    ids=["own-means", "n-times"],
)
def test_own_means_of_which_losses_are_the_mean_and_gradients_the_sum_are_one_mistake(
    factor: Callable[[int], float], told: list[tuple[str, str]]
) -> None:
    evidence = observe(
        Fault(scale=lambda r, _: factor(r)),
        shards=UNEVEN,
        replicas=N,
        shards_known=False,
        loss_reduction="mean",
    )
    findings = judge(evidence).findings
    assert [(f.code, f.phase) for f in findings] == told


def observe_uneven_means(reduce, **setup):
    """Own means of uneven shards, however they are reduced."""
    return observe(
        Fault(
            scale=lambda r, _: sum(UNEVEN) / UNEVEN[r],
            reduce=lambda own, _: reduce(own),
        ),
        replicas=N,
        shards=UNEVEN,
        shards_known=False,
        loss_reduction=None,
        rule=RULE,
        **setup,
    )


@pytest.mark.parametrize(
    ("combine", "code"),
    [(add_up, "loss-not-scaled"), (average, "mean-of-means")],
    ids=["added-up", "averaged"],
)
def test_the_state_tells_whether_own_means_that_nobody_saw_summed_are_averaged(
    combine: Callable[..., object], code: str
) -> None:
    evidence = observe_uneven_means(lambda own: [combine(own)] * N, sparse=False)
    hidden = hide_sums(evidence)
    due = feed_combined(hidden, add_up, RULE, map_all(keep))
    mean = feed(hidden, "mean", RULE, map_all(keep))
    sums = tuple(feed(hidden, way, RULE, map_all(keep)) for way in WAYS)
    fed = {"due": due, "mean": mean, "sums": () if combine is add_up else sums}
    (finding,) = judge(change_evidence(hidden, **fed)).findings
    assert (finding.code, finding.phase) == (code, "loss")


def test_own_means_that_are_clipped_and_summed_are_no_average() -> None:
    """Their clips add up to the sum, and an average would be an N-th of that."""
    evidence = observe_uneven_means(
        lambda own: [add_up([map_all(clip)(g) for g in own])] * N,
        alone=map_all(clip),
        sparse=False,
    )
    first = judge(change_apart(evidence, map_all(clip))).findings[0]
    assert (first.code, first.phase) == ("loss-not-scaled", "loss")


@pytest.mark.parametrize(
    ("reduce", "code"),
    [
        (lambda own: own, "missing-reduction"),
        (lambda own: [add_up([own[0], own[2]])] * N, "replica-dropped"),
    ],
    ids=["own", "dropped"],
)
def test_own_means_of_which_some_are_summed_are_no_average(reduce, code) -> None:
    """Nothing is divided by N, and nothing else is made up for."""
    evidence = observe_uneven_means(reduce)
    first, second = judge(evidence).findings
    assert (first.code, first.phase) == ("loss-not-scaled", "loss")
    assert (second.code, second.phase) == (code, "reduced_gradient")
    assert "times" not in second.explanation
    assert "scaled to make up" not in second.explanation


def test_even_means_that_are_said_to_be_averaged_and_are_not_summed() -> None:
    """The sentence counts gradients as tapes gave them, and not by their shares."""
    evidence = observe(
        Fault(scale=lambda r, _: float(N), reduce=lambda own, _: own),
        replicas=N,
        shards_known=False,
        loss_reduction="mean",
        rule=RULE,
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "missing-reduction"
    assert "each replica goes on with its own gradient" in finding.explanation


@pytest.mark.parametrize("sums_means", [True, False])
def test_a_sum_of_own_means_is_of_averages_where_the_step_makes_these(
    sums_means: bool,
) -> None:
    """N times an average is what nobody has averaged."""
    evidence = observe(
        Fault(scale=lambda r, _: N),
        replicas=N,
        shards_known=False,
        loss_reduction="mean",
    )
    subject = replace(evidence.subject, sums_means=sums_means)
    (finding,) = judge(replace(evidence, subject=subject)).findings
    told = ("loss-not-scaled", "local_gradient")
    if sums_means:
        told = ("double-reduction", "reduced_gradient")
    assert (finding.code, finding.phase) == told


def test_the_limit_of_clips_that_are_averaged_is_that_of_whole_gradients() -> None:
    (finding,) = judge(observe_means(average_clipped, clip)).findings
    assert "to 0.3 before" in finding.explanation
    assert "times that" not in finding.explanation
