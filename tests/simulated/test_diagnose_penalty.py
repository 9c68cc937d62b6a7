"""A penalty on a variable that no example reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from training_simulator import KERNEL, TRAINED, Fault, Setup, Simulation

from distbench.compare.arrays.measure import BITWISE
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.pull import Pull, apply_pull, fit_pull
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.penalty_counts import (
    Counts,
    find_counts,
    join_counts,
    tell_counts,
)
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.split import shard_slices
from distbench.trace import WHOLE, TraceKey


@pytest.mark.parametrize("known", [True, False], ids=["shards-known", "program"])
@pytest.mark.parametrize(
    ("summed_first", "code", "variables"),
    [
        (False, "regularizer-not-scaled", (KERNEL,)),
        (True, "double-reduction", tuple(p for p in TRAINED if p != "head/gain")),
    ],
    ids=["whole-penalty", "summed-twice"],
)
def test_what_only_the_penalty_reaches_is_told_from_a_sum_of_sums(
    summed_first: bool, code: str, variables: tuple[str, ...], known: bool
) -> None:
    """The whole penalty is all that there is to sum of it."""
    setup = Setup(penalty=0.25, shards_known=known, summed_first=summed_first)
    run = Simulation(setup)
    run.batches = [(np.zeros_like(x), ids, y) for x, ids, y in run.batches]
    part = 1 / setup.replicas if summed_first else 1.0
    (finding,) = judge(run.observe(Fault(penalty=lambda r, s: part))).findings
    assert (finding.code, finding.variables) == (code, variables)
    assert finding.phase == "local_gradient"


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_a_penalty_of_another_weight_is_told_of_a_single_replica(times: float) -> None:
    """As where each worker of parameter servers has a share of it."""
    setup = Setup(replicas=1, shards=(16,), penalty=0.25, shards_known=False)
    evidence = Simulation(setup).observe(Fault(penalty=lambda r, s: times))
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.variables) == ("regularizer-not-scaled", (KERNEL,))
    assert "num_replicas_in_sync" not in finding.explanation


@pytest.mark.parametrize(
    ("part", "words", "advice"),
    [
        (1.0, "counts 2 times in place of once", "by num_replicas_in_sync"),
        (1 / 4, "counts 0.5 times in place of once", "no more than once"),
        (0.0, "is left out", "to what each replica differentiates"),
    ],
)
def test_how_often_a_penalty_counts_is_told_by_what_shards_alone_have(
    part: float, words: str, advice: str
) -> None:
    """In a sum, which is all that is held against one device's here."""
    setup = Setup(penalty=0.25, loss_reduction="sum")
    evidence = Simulation(setup).observe(Fault(penalty=lambda r, s: part))
    shares = [1 / setup.replicas] * setup.replicas
    (finding,) = judge(let_shards_have_all(evidence, setup, shares)).findings
    assert finding.code == "regularizer-not-scaled"
    assert words in finding.explanation
    assert advice in finding.explanation


def let_shards_have_all(
    evidence: Evidence, setup: Setup, shares: Sequence[float]
) -> Evidence:
    """The same of a program's own loop: each shard alone has the penalty in full."""
    values = dict(evidence.reference.values)
    for key in [k for k in values if k.replica >= 0 and k.variable == KERNEL]:
        if key.phase == "local_gradient":
            theta = evidence.get_before(key.step, "variable", KERNEL)
            rest = (1 - shares[key.replica]) * setup.penalty * np.asarray(theta)
            values[key] = np.asarray(values[key] + rest, np.float32)
    return replace(
        evidence,
        penalty=None,
        reference=replace(evidence.reference, values=values),
        measure=replace(evidence.measure, shards_known=False),
    )


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((2, 1), "the L2 part counts 2 times in place of once, the L1 part is right"),
        ((1, 0.5), "the L2 part is right, the L1 part counts 0.5 times in place of"),
        ((0, 1), "the L2 part is left out, the L1 part is right"),
        ((3, 3), "a penalty on the variable counts 3 times in place of once"),
    ],
)
def test_each_part_of_a_penalty_has_a_count_of_its_own(
    counts: tuple[float, float], words: str
) -> None:
    found = count_parts((0.4, 0.05), counts)
    assert found is not None
    assert words in tell_counts(found)


def test_what_one_device_has_no_part_of_has_no_count() -> None:
    """Nobody knows how often something counts of which once is nothing."""
    assert count_parts((0.4, 0.0), (2, 1)) == (pytest.approx(2, rel=1e-3), None)
    assert count_parts((0.4, 0.0), (2, 1), more=(0.0, 0.05)) is None


def test_counts_are_told_if_all_values_agree() -> None:
    assert join_counts([(2.0, None), (2.0, 1.0)]) == (2.0, 1.0)
    assert join_counts([(2.0, None), (3.0, 1.0)]) is None
    assert join_counts([(2.0, None), None]) is None


def count_parts(
    weights: Pull, counts: tuple[float, float], more: Pull = (0.0, 0.0)
) -> Counts | None:
    """How often each part is found to count of a penalty that shards have in full.

    Args:
        weights: Of its parts.
        counts: How often each counts in the sum.
        more: What the sum has besides.
    """
    setup = Setup(replicas=3, shards=(7, 5, 4), loss_reduction="sum")
    evidence = Simulation(setup).observe(Fault())
    key = TraceKey(step=0, phase="local_gradient", variable=KERNEL)
    theta = np.asarray(evidence.get_before(0, "variable", KERNEL), np.float64)
    values = dict(evidence.reference.values)
    for place in (WHOLE, 0, 1, 2):
        due = values[key.at(place)] + apply_pull(weights, theta)
        values[key.at(place)] = np.asarray(due, np.float32)
    due = np.asarray(values[key.at(WHOLE)], np.float64)
    wrong = [(c - 1) * w + m for c, w, m in zip(counts, weights, more, strict=True)]
    observed = due + apply_pull((wrong[0], wrong[1]), theta)
    case = Pair(
        key=key.at(WHOLE),
        relation="reference",
        against="one device",
        observed=np.asarray(observed, np.float32).astype(np.float64),
        expected=due,
        margin=BITWISE,
        dtype="float32",
    )
    evidence = replace(evidence, reference=replace(evidence.reference, values=values))
    context = Context(evidence=evidence, phase="local_gradient", cases=(case,))
    pull = fit_pull(theta, case.observed - case.expected)
    assert pull is not None
    return find_counts(context, case, pull)


@pytest.mark.parametrize(
    ("power", "count", "told"),
    [
        (1, 1.0, "too much"),
        (1, 0.0, "too little"),
        (1, 1 / 2, ""),
        (0, 3.0, "too much"),
        (0, 1 / 2, "may be shared rightly"),
        (2, 0.0, "too little"),
    ],
)
def test_a_penalty_beside_a_wrong_mean_is_told_as_far_as_what_is_left_of_it_tells(
    power: int, count: float, told: str
) -> None:
    """Nobody knows how large it is."""
    first, *others = judge(observe_own_means(power, count)).findings
    codes = "loss-not-scaled", "mean-of-means", "loss-scaled-twice"
    assert first.code == codes[power]
    assert ("may be shared rightly" in first.explanation) == told.startswith("may")
    is_wrong = told.startswith("too")
    assert [(f.code, f.variables) for f in others] == [
        ("regularizer-not-scaled", (KERNEL,))
    ] * is_wrong
    assert all(told in finding.explanation for finding in others)


@pytest.mark.parametrize(
    ("count", "told"), [(1 / 2, "shared as it should be"), (0.0, "is left out")]
)
def test_a_penalty_that_is_known_is_counted_beside_a_wrong_mean(
    count: float, told: str
) -> None:
    evidence = observe_own_means(0, count, is_known=True)
    *_, last = judge(evidence).findings
    assert told in last.explanation


def observe_own_means(power: int, count: float, *, is_known: bool = False) -> Evidence:
    """Means over own weights, divided by a power of N, beside a share of a penalty."""
    setup = Setup(penalty=0.25, weighed=True, shards=(9, 7), shards_known=False)
    run = Simulation(setup)
    own = [run.weights[rows].sum() for rows in shard_slices(run.shards)]
    whole = [float(run.examples / each) for each in own]
    factors = [each / setup.replicas**power for each in whole]
    fault = Fault(
        scale=lambda r, s: factors[r], penalty=lambda r, s: count / factors[r]
    )
    shares = [each / setup.replicas for each in whole]
    evidence = let_shards_have_all(run.observe(fault), setup, shares)
    known = Simulation(replace(setup, shards_known=True)).observe(Fault()).penalty
    return replace(evidence, penalty=known if is_known else None)
