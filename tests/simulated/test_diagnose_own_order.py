"""Replicas that add up the same gradients in orders of their own."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import scale
from training_simulator import BIAS, TRAINED, Fault, Rule, add_up, observe

from distbench.compare.comparison import compare_evidence
from distbench.diagnose.judge import judge
from distbench.diagnose.stages.links import judge_chain
from distbench.diagnose.stages.state import explain_apart


def add_in_turn(locals_, step):
    return [add_up([*locals_[r:], *locals_[:r]]) for r in range(len(locals_))]


@pytest.mark.parametrize("rule", [Rule(), Rule(name="adam")], ids=lambda r: r.name)
def test_it_is_the_sums_that_differ_and_no_slot_is_blamed(rule):
    evidence = observe(Fault(reduce=add_in_turn), replicas=3, rule=rule, steps=4)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("replicas-diverged", "reduced_gradient")
    assert set(finding.variables) <= set(TRAINED)
    assert "in an order of its own" in finding.explanation


def test_slots_that_differ_by_themselves_are_named():
    def update(new, old, gradients, run):
        if run.replica == 1:
            return {k: v * (1 + 2.0**-23) if "m/" in k else v for k, v in new.items()}
        return new

    evidence = observe(Fault(update=update), replicas=3, rule=Rule(name="adam"))
    assert judge(evidence).findings[0].phase == "slot"


def test_it_is_told_beside_another_fault():
    def reduce(locals_, step):
        doubled = scale(add_up(locals_)[BIAS], 2)
        return [{**total, BIAS: doubled} for total in add_in_turn(locals_, step)]

    scaled, apart = judge(observe(Fault(reduce=reduce), replicas=3)).findings
    assert (scaled.code, scaled.variables) == ("scale-error", (BIAS,))
    assert (apart.code, apart.phase) == ("replicas-diverged", "reduced_gradient")
    assert BIAS not in apart.variables


@pytest.mark.parametrize("tier", ["bounded", "free"])
def test_what_goes_apart_by_another_fault_is_not(tier):
    """A sum that one replica does not take moves all that is computed from then on."""

    def reduce(locals_, step):
        total = add_up(locals_)
        return [{**total, BIAS: own[BIAS]} for own in locals_]

    evidence = observe(Fault(reduce=reduce), replicas=3, tier=tier)
    assert {f.variables for f in judge(evidence).findings} == {(BIAS,)}


def test_an_order_that_all_share_passes():
    def add_backwards(locals_, step):
        return [add_up(locals_[::-1])] * len(locals_)

    assert not judge(observe(Fault(reduce=add_backwards), replicas=3)).findings


@pytest.mark.parametrize(
    ("factor", "words"),
    [(1 + 2.0**-22, "by a rounding"), (1.25, "random numbers of its own")],
    ids=["rounding", "more"],
)
def test_sums_that_are_farther_apart_than_by_a_rounding_are_not_said_to_be(
    factor, words
):
    """Where nothing but the copies can be compared, as where steps draw numbers."""

    def reduce(locals_, step):
        total = add_up(locals_)
        last = {path: scale(value, factor) for path, value in total.items()}
        return [total, last]

    evidence = observe(Fault(reduce=reduce))
    infos = {v.path: v for v in evidence.observed.variables}
    chain = judge_chain(compare_evidence(evidence), infos, free=False)
    [finding] = explain_apart(evidence, chain)
    assert words in finding.explanation


@pytest.mark.parametrize("differs", [True, False], ids=["by-own", "by-first"])
def test_what_each_makes_of_the_sum_by_something_of_its_own_is_told(differs):
    """Whatever it is: here the sum is bent by how its elements lie to the own ones."""

    def bend(total, own):
        return (total * np.cos(3 * own) + own**2).astype(total.dtype)

    def reduce(locals_, step):
        total = add_up(locals_)
        by = [own if differs else locals_[0] for own in locals_]
        return [{path: bend(total[path], own[path]) for path in total} for own in by]

    evidence = observe(Fault(reduce=reduce), sparse=False, replicas=3)
    first = judge(evidence).findings[0]
    assert first.phase == "reduced_gradient"
    assert (first.code == "replicas-diverged") == differs
    assert ("makes something else of the gradients of all" in first.explanation) == (
        differs
    )
