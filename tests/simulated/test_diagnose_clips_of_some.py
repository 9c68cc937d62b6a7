"""Clips before the sum that some replicas make, and others do not."""

from __future__ import annotations

import pytest
from gradient_values import add_up, clip_all, clip_norm, scale
from planted_case import check_passed
from training_simulator import Fault, observe

from distbench.diagnose.judge import judge


def clip_each(gradients, limit):
    return {path: clip_norm(value, limit) for path, value in gradients.items()}


def shrink(gradients, factor):
    return {path: scale(value, factor) for path, value in gradients.items()}


def judge_some(change, some, replicas=3):
    """Some replicas change their gradients before they are added up."""

    def reduce(own, step):
        changed = [change(g) if r in some else g for r, g in enumerate(own)]
        return [add_up(changed)] * replicas

    return judge(observe(Fault(reduce=reduce), replicas=replicas, steps=2))


@pytest.mark.parametrize("some", [(2,), (0, 1)], ids=["last", "all-but-last"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda g: clip_all(g, 0.3), "the global norm"),
        (lambda g: clip_each(g, 0.2), "the norm of each variable's gradient"),
    ],
    ids=["global", "each"],
)
def test_the_replicas_that_clip_are_named(change, words, some):
    (finding,) = judge_some(change, some).findings
    assert (finding.code, finding.phase) == (
        "clip-before-reduction",
        "reduced_gradient",
    )
    assert finding.replicas == some
    assert words in finding.explanation
    assert "alone clip" in finding.explanation


def test_a_factor_on_one_replica_is_no_clip():
    (finding,) = judge_some(lambda g: shrink(g, 0.5), (2,)).findings
    assert finding.code == "scale-error"


def test_a_limit_that_none_of_them_reaches_passes():
    check_passed(judge_some(lambda g: clip_all(g, 1e6), (2,)))
