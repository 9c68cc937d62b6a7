"""Gradients that are multiplied before they become narrow, and divided after."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import add_up, scale, to_array
from training_simulator import TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Status


def find_largest(locals_, path):
    """100 by the largest number of all replicas, as where a range is agreed on."""
    return np.float32(100 / max(np.max(np.abs(g[path])) for g in locals_))


def send(find_scale, factor=1.0):
    """Sums of float16 numbers, each partial sum rounded."""

    def reduce(locals_, step):
        total = {}
        for path in locals_[0]:
            by = np.float32(find_scale(locals_, path))
            sent = sum((to_array(g[path]) * by).astype(np.float16) for g in locals_)
            total[path] = sent.astype(np.float32) / by * np.float32(factor)
        return [total for _ in locals_]

    return Fault(reduce=reduce)


SCALES = {
    "number": lambda *_: 1000.0,
    "share": lambda locals_, _: 1 / len(locals_),
    "largest": find_largest,
}


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("name", SCALES)
def test_half_precision_under_any_scale_is_a_warning(name, replicas):
    judgement = judge(observe(send(SCALES[name]), replicas=replicas, sparse=False))
    assert [finding.code for finding in judgement.findings] == ["lower-precision"]
    assert set(judgement.findings[0].variables) == set(TRAINED)
    assert judgement.status is Status.PASS


@pytest.mark.parametrize("name", SCALES)
def test_a_scale_that_is_not_taken_out_again_fails(name):
    """By a factor that is hardly more than float16 rounds."""
    judgement = judge(observe(send(SCALES[name], 1.0005), replicas=3, sparse=False))
    assert judgement.status is Status.FAIL


@pytest.mark.parametrize("tier", ["exact", "bounded"])
@pytest.mark.parametrize("factor", [1.0001, 1.0005])
def test_a_small_factor_is_no_rounding(factor, tier):
    """Numbers of few digits have few under some scale, whatever they are times."""

    def reduce(locals_, step):
        total = add_up(locals_)
        return [{k: scale(to_array(v), factor) for k, v in total.items()}] * len(
            locals_
        )

    judgement = judge(observe(Fault(reduce=reduce), tier=tier, sparse=False))
    assert {finding.code for finding in judgement.findings} == {"scale-error"}
