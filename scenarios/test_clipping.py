"""Would catch clipping of each replica's gradient in place of their sum.

https://github.com/tensorflow/tensorflow/issues/33929: N clipped gradients add up to N
times the limit; https://github.com/LeelaChessZero/lczero-training/issues/162: and to
another direction.
"""

from __future__ import annotations

import pytest


@pytest.mark.scenarios(
    workloads=["mlp"],
    paths=["transformers", "clipvalue", "clipnorm", "global-clipnorm"],
)
def test_clipping_follows_the_sum(check):
    check().raise_for_status()


@pytest.mark.scenarios(
    workloads=["embedding"],
    optimizers=["sgd", "adam"],
    paths=["clipvalue", "global-clipnorm"],
)
def test_sparse_gradients_are_clipped_after_the_sum(check):
    check().raise_for_status()
