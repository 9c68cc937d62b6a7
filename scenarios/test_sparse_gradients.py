"""Would catch sparse rows that are averaged, lost or overwritten by their duplicates.

https://github.com/tensorflow/tensorflow/issues/5252: values averaged as if all indices
were equal; https://github.com/horovod/horovod/issues/2279: summed, but not averaged.
"""

from __future__ import annotations

import pytest


@pytest.mark.scenarios(
    workloads=["embedding"],
    optimizers=["sgd", "momentum", "adam", "adamw", "averaged_sgd", "lazy_adam"],
    clusters=["mirrored:2", "mwms:2", "central:2", "ps:2+1"],
)
def test_rows_shared_and_repeated_agree_with_one_device(check):
    check().raise_for_status()


@pytest.mark.scenarios(
    workloads=["embedding"],
    optimizers=["sgd", "lazy_adam"],
    paths=["aggregator", "aggregator-two-stage", "user"],
)
def test_rows_survive_a_reduction_by_hand(check):
    check().raise_for_status()
