"""Would catch a reduction by hand that the optimizer repeats, or cannot turn off.

https://github.com/tensorflow/recommenders-addons/issues/183 reduced twice;
https://github.com/huggingface/transformers/pull/6717 lacked
`experimental_aggregate_gradients`, as optimizers that override `apply_gradients` do.
"""

from __future__ import annotations

import pytest


@pytest.mark.scenarios(
    workloads=["linear", "mlp"],
    paths=["aggregator", "aggregator-mean", "aggregator-two-stage", "user"],
)
def test_reduction_by_hand_is_the_only_one(check):
    check().raise_for_status()


@pytest.mark.scenarios(
    workloads=["linear"], optimizers=["averaged_sgd", "adamw"], paths=["user"]
)
def test_overridden_apply_gradients_takes_the_flag(check):
    check().raise_for_status()
