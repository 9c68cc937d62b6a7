"""Would catch gradients paired with the wrong variables, and constraints left out.

A variable without gradient must be dropped together with its gradient: in
https://github.com/deepspeedai/DeepSpeed/issues/2343 ranks ordered them differently. An
average of the weights has to see the constrained ones, under strategies too:
https://github.com/tensorflow/addons/issues/605.
"""

from __future__ import annotations

import pytest


@pytest.mark.scenarios(
    workloads=["constrained"],
    optimizers=["adam", "averaged_sgd"],
    clusters=["mirrored:2", "mwms:2", "central:2", "ps:2+1"],
)
def test_constraint_holds_and_unused_variable_stands_still(check):
    check().raise_for_status()


@pytest.mark.scenarios(
    workloads=["constrained"], paths=["aggregator", "aggregator-two-stage", "user"]
)
def test_reduction_by_hand_keeps_the_pairs(check):
    check().raise_for_status()
