"""Would catch a penalty that every replica adds in full, N times in the sum.

https://github.com/tensorflow/models/issues/6195 and
https://github.com/keras-team/keras/issues/19891.
"""

from __future__ import annotations

import pytest


@pytest.mark.scenarios(
    workloads=["regularized"],
    optimizers=["sgd", "adamw"],
    clusters=["mirrored:2", "mwms:2", "mwms:4", "ps:2+1"],
)
def test_penalty_counts_once(check):
    check().raise_for_status()
