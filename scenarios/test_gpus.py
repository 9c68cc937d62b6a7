"""Would catch sums that only go wrong between GPUs, or stop at an odd number of them.

https://github.com/tensorflow/tensorflow/issues/41980: a collective returned garbage.
Needs GPUs; `--require-gpus N` fails instead of skipping.
"""

from __future__ import annotations

import pytest


@pytest.mark.gpu
@pytest.mark.scenarios(
    workloads=["linear", "mlp", "embedding"],
    clusters=["mirrored:2@gpu", "mirrored:all@gpu", "mwms:2@gpu", "mwms:2x2@gpu"],
)
def test_gpus_do_what_one_device_does(check):
    check().raise_for_status()
