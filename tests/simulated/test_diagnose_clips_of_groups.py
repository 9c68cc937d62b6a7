"""Clips before the sum by the joint norm of some of the variables."""

from __future__ import annotations

import pytest
from gradient_values import add_up, clip_all, clip_norm, scale
from planted_case import check_passed
from swept import swept
from training_simulator import BIAS, HEAD, KERNEL, TABLE, Fault, observe

from distbench.diagnose.judge import judge


def clip_groups(gradients, limits):
    """Each group is scaled down to a norm, the others are left as they are."""
    clipped = dict(gradients)
    for paths, limit in limits.items():
        clipped |= clip_all({path: gradients[path] for path in paths}, limit)
    return clipped


def judge_each(change, **setup):
    """Every replica changes its gradients before they are added up."""
    setup = {"replicas": 3, "sparse": False, "steps": 3, "width": 8, **setup}

    def reduce(own, step):
        return [add_up([change(g, r) for r, g in enumerate(own)])] * len(own)

    return judge(observe(Fault(reduce=reduce), **setup))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({(KERNEL, TABLE): 0.3}, f"the joint norm of '{KERNEL}', '{TABLE}' to 0.3 "),
        ({(BIAS, TABLE): 0.2}, f"the joint norm of '{BIAS}', '{TABLE}' to 0.2 "),
        (
            {(KERNEL, HEAD): 0.3, (BIAS, TABLE): 0.2},
            f"joint norm of '{BIAS}', '{TABLE}' to 0.2 and",
        ),
        (
            {(KERNEL, HEAD, BIAS): 0.3, (TABLE,): 0.2},
            f"the norm of '{TABLE}' to 0.2",
        ),
    ],
    ids=["two", "large-and-small", "two-groups", "three-and-one"],
)
@pytest.mark.parametrize("replicas", [3, *swept(2, 4)])
@pytest.mark.first(2)
def test_the_variables_of_a_joint_norm_are_named(limits, words, replicas):
    judgement = judge_each(lambda g, _: clip_groups(g, limits), replicas=replicas)
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == (
        "clip-before-reduction",
        "reduced_gradient",
    )
    assert set(finding.variables) == {path for paths in limits for path in paths}
    assert words in finding.explanation
    assert finding.confidence > 0.999


def test_norms_of_single_variables_are_joint_with_no_other():
    def change(gradients, replica):
        return {path: clip_norm(value, 0.1) for path, value in gradients.items()}

    (finding,) = judge_each(change).findings
    assert "each variable's gradient" in finding.explanation


def test_a_share_of_each_replica_is_no_clip():
    """Replicas count alike in two variables, by numbers that no norm gives."""

    def change(gradients, replica):
        shares = (0.9, 0.3, 0.6)
        return {
            path: scale(value, shares[replica]) if path in (KERNEL, TABLE) else value
            for path, value in gradients.items()
        }

    findings = judge_each(change).findings
    assert findings
    assert not any("joint norm" in finding.explanation for finding in findings)


def test_a_group_that_is_never_clipped_may_be_rounded():
    """As TensorFlow does: it is multiplied by the limit, and divided by it."""

    def change(gradients, replica):
        clipped = clip_groups(gradients, {(KERNEL, TABLE): 0.3})
        for path in (BIAS, HEAD):
            clipped[path] = scale(scale(clipped[path], 1.1), 1 / 1.1)
        return clipped

    (finding,) = judge_each(change, replicas=2).findings
    assert f"the joint norm of '{KERNEL}', '{TABLE}' to 0.3 " in finding.explanation


def test_limits_that_no_group_reaches_pass():
    check_passed(judge_each(lambda g, _: clip_groups(g, {(KERNEL, TABLE): 1e6})))
