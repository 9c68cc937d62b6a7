"""Micro-steps of a step by hand, read off the state: no gradient was recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import Gradients, add_up, scale
from hidden_sums import WAYS, feed, hide_sums, map_sum
from simulated_rule import Rule
from training_simulator import TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence, Inside
from distbench.trace import Trace, Values
from distbench.trace.intermediates import name_given
from distbench.verdict import Finding, Status

RULES = [Rule(), Rule(name="momentum")]
PARTS = 2
SHARDS = (4, 8, 12)
COUNTS = ((6, 5), (5, 4), (2, 2))
"""Of how many examples each micro-step of a replica is a mean."""
Cut = Callable[[np.ndarray, int], list[np.ndarray]]
"""Makes a replica's micro-steps of what it adds up."""


def cut(value: np.ndarray) -> list[np.ndarray]:
    """A gradient as its micro-steps give it."""
    share = np.random.default_rng(5).random(value.shape).astype(np.float32)
    return [share * value, value - share * value]


def keep_own(kept: Sequence[int]) -> Fault:
    """Of some micro-steps each replica has its own gradient, of the others the sum."""

    def reduce(locals_: Sequence[Gradients], step: int) -> list[Gradients]:
        def make(replica: int, path: str) -> np.ndarray:
            own = [cut(g[path]) for g in locals_]
            return sum(
                own[replica][n] if n in kept else sum(parts[n] for parts in own)
                for n in range(PARTS)
            )

        return [{p: make(r, p) for p in g} for r, g in enumerate(locals_)]

    return Fault(reduce=reduce)


def cut_alike(value: np.ndarray, replica: int) -> list[np.ndarray]:
    """The same, whoever has it."""
    return cut(value)


def count(value: np.ndarray, replica: int) -> list[np.ndarray]:
    """The micro-steps of a replica, each a mean over its own examples."""
    total = sum(map(sum, COUNTS))
    means = [total / PARTS / c for c in COUNTS[replica]]
    return [np.float32(m) * part for m, part in zip(means, cut(value), strict=True)]


def cut_counted(value: np.ndarray, replica: int) -> list[np.ndarray]:
    """The micro-steps of which such means were added up."""
    due = np.ones(value.shape, np.float32)
    return [value / sum(count(due, replica)) * part for part in count(due, replica)]


def look(evidence: Evidence, cut_own: Cut) -> Evidence:
    """Without gradients, and with what tapes gave in each micro-step.

    Args:
        evidence: A run whose sums nobody saw.
        cut_own: Cuts what a replica added up.
    """

    def give(trace: Trace, cut: Cut) -> Trace:
        given = {
            replace(key, phase="loss", variable=name_given(n, key.variable)): part
            for key, value in trace.select(phase="local_gradient")
            if key.variable in TRAINED
            for n, part in enumerate(cut(value, key.replica))
        }
        return replace(trace, values=given)

    def hide(trace: Trace) -> Trace:
        left = Values(trace.values).keep(lambda key: key.phase != "local_gradient")
        return replace(trace, values=left)

    inside = Inside(
        reference=give(evidence.reference, cut_alike),
        observed=give(evidence.observed, cut_own),
    )
    return replace(evidence.change_traces(hide), inside=inside)


def judge_looked(
    fault: Fault,
    rule: Rule,
    ways: Mapping[str, object] = WAYS,
    cut_own: Cut = cut_alike,
    **setup: object,
) -> Judgement:
    def see(fault: Fault) -> Evidence:
        known = {"shards_known": False, "sparse": False, **setup}
        return hide_sums(observe(fault, replicas=3, rule=rule, **known))

    # One device has multiples of its own gradients, whatever the cluster's are.
    right = see(Fault())
    sums = tuple(
        feed(right, way, rule, lambda gradients: gradients)
        for way in ("mean", "thrice", "none")
        if way in ways
    )
    return judge(look(change_evidence(see(fault), sums=sums), cut_own))


def find(fault: Fault, rule: Rule, ways: Mapping[str, object] = WAYS) -> Finding:
    return judge_looked(fault, rule, ways).findings[0]


def scale_local(gradients: Gradients, replica: int, step: int) -> Gradients:
    return {path: scale(value, 3.0) for path, value in gradients.items()}


def add_locals(locals_: Sequence[Gradients], step: int) -> list[Gradients]:
    return [add_up(locals_) for _ in locals_]


def average_locals(locals_: Sequence[Gradients], step: int) -> list[Gradients]:
    return [map_sum(add_up(locals_), 1 / 3) for _ in locals_]


@pytest.mark.parametrize(("kept", "number"), [((0,), "number 1"), ((1,), "number 2")])
def test_micro_steps_that_each_keeps_for_itself_are_told(kept, number):
    finding = find(keep_own(kept), RULES[0])
    assert (finding.code, finding.phase) == ("missing-reduction", "variable")
    assert f"its own of {number}" in finding.explanation
    assert finding.confidence == pytest.approx(1)


def test_nothing_is_read_off_where_one_device_was_not_asked() -> None:
    finding = find(keep_own((0,)), RULES[0], ways={})
    assert (finding.code, finding.confidence) == ("replicas-diverged", 0)


@pytest.mark.parametrize("rule", RULES, ids=["descent", "momentum"])
def test_a_mean_is_told_by_what_comes_of_an_nth_of_all_gradients(rule) -> None:
    def reduce(locals_: Sequence[Gradients], step: int) -> list[Gradients]:
        mean = {p: sum(g[p] for g in locals_) / np.float32(3) for p in locals_[0]}
        return [mean for _ in locals_]

    finding = find(Fault(reduce=reduce), rule)
    assert (finding.code, finding.phase) == ("mean-instead-of-sum", "variable")


@pytest.mark.parametrize("rule", RULES, ids=["descent", "momentum"])
def test_gradients_that_are_n_times_their_share_are_told_before_the_state(rule) -> None:
    """As of one gradient, and not as a sum or an update that is made N times."""
    undeclared = {"loss_reduction": None}
    wrong = Fault(local=scale_local, reduce=add_locals)
    finding = judge_looked(wrong, rule, **undeclared).findings[0]
    assert (finding.code, finding.phase) == ("loss-not-scaled", "local_gradient")
    right = Fault(local=scale_local, reduce=average_locals)
    assert judge_looked(right, rule, **undeclared).status is Status.PASS


def test_own_means_are_told_by_gradients_where_losses_hide_them() -> None:
    """Of losses that are all alike the mean of means is that of all."""

    def weigh(gradients: Gradients, replica: int, step: int) -> Gradients:
        weight = sum(SHARDS) / len(SHARDS) / SHARDS[replica]
        return {path: scale(value, weight) for path, value in gradients.items()}

    wrong = Fault(local=weigh, reduce=add_locals)
    finding = judge_looked(wrong, RULES[0], shards=SHARDS).findings[0]
    assert (finding.code, finding.phase) == ("mean-of-means", "local_gradient")
    assert finding.confidence == pytest.approx(1)


def test_own_means_of_micro_steps_are_told_by_what_each_of_them_holds() -> None:
    """No factor of a shard makes up for micro-steps of several lengths."""

    def weigh(gradients: Gradients, replica: int, step: int) -> Gradients:
        return {path: sum(count(value, replica)) for path, value in gradients.items()}

    wrong = Fault(local=weigh, reduce=add_locals)
    undeclared = {"loss_reduction": None, "cut_own": cut_counted}
    (finding,) = judge_looked(wrong, RULES[0], **undeclared).findings
    assert (finding.code, finding.phase) == ("loss-not-scaled", "local_gradient")
    assert "in each micro-step is a mean over a part of its own" in finding.explanation
    assert finding.confidence == pytest.approx(1)
