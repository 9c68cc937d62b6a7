"""Would catch a family of optimizers that does not sum, or sums twice.

Each has its own way from gradients to variables. Keras 3's once summed nothing:
https://github.com/keras-team/keras/issues/19308.
"""

from __future__ import annotations

import pytest

STOCK = (
    "legacy_adam",
    "legacy_momentum",
    "keras2_adamw",
    "keras2_rmsprop",
    "keras3_adam",
    "keras3_momentum",
    "v1_adam",
    "v1_momentum",
)


@pytest.mark.scenarios(
    workloads=["linear", "embedding"],
    optimizers=STOCK,
    clusters=["mirrored:2", "mwms:2", "central:2"],
)
def test_stock_optimizers_do_what_one_device_does(check):
    check().raise_for_status()
