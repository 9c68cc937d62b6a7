"""Would catch gradients that are never summed over the replicas.

https://github.com/keras-team/keras/issues/19308, whose first fix (keras#19467) shipped
with green tests and changed nothing.
"""

from __future__ import annotations

import pytest

EVERY_OPTIMIZER = ("sgd", "momentum", "adam", "adamw", "averaged_sgd", "lazy_adam")


@pytest.mark.scenarios(
    workloads=["linear"],
    optimizers=EVERY_OPTIMIZER,
    clusters=["mirrored:2", "mwms:2", "central:2", "ps:2+1"],
)
def test_cluster_does_what_one_device_does(check):
    check().raise_for_status()


@pytest.mark.scenarios(workloads=["mlp"], clusters=["mirrored:2", "mwms:2", "ps:2+1"])
def test_network_on_real_data_agrees(check):
    check().raise_for_status()


@pytest.mark.scenarios(
    workloads=["linear", "mlp"], clusters=["mirrored:3", "mwms:4", "ps:4+2"]
)
def test_larger_clusters_agree(check):
    check().raise_for_status()
