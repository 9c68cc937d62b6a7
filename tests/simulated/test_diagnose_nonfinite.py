"""Sums that are infinite though every replica's tape gave numbers."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import add_up, map_values, to_array
from training_simulator import Fault, observe

from distbench.diagnose.judge import judge


def judge_sums(reduce, replicas=3):
    with np.errstate(all="ignore"):
        evidence = observe(
            Fault(reduce=lambda own, step: [reduce(own)] * replicas),
            replicas=replicas,
            sparse=False,
        )
    return judge(evidence)


def overflow(value):
    """As float32 what float16 makes of numbers that are too large for it."""

    def change(array):
        return np.where(np.abs(array) > 0.05, np.copysign(np.inf, array), array)

    return map_values(value, lambda a: change(a).astype(np.float32))


def change_some(own, some, change):
    return add_up(
        [
            {path: change(value) for path, value in g.items()} if r in some else g
            for r, g in enumerate(own)
        ]
    )


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_replica_that_overflows_before_the_sum_is_named(replicas):
    judgement = judge_sums(lambda own: change_some(own, (1,), overflow), replicas)
    (finding,) = judgement.findings
    assert (finding.code, finding.replicas) == ("nonfinite", (1,))
    assert "the sign of the gradients of replica 1" in finding.explanation


@pytest.mark.parametrize(
    "reduce",
    [
        lambda own: change_some(own, (0, 1, 2), overflow),
        lambda own: {path: overflow(v) for path, v in add_up(own).items()},
        lambda own: change_some(own, (1,), lambda v: np.full_like(to_array(v), np.nan)),
    ],
    ids=["all", "the-sum-itself", "nan"],
)
def test_no_replica_is_named_where_no_sign_tells_it(reduce):
    (finding,) = judge_sums(reduce).findings
    assert (finding.code, finding.replicas) == ("nonfinite", (0, 1, 2))
    assert "the sign of" not in finding.explanation
