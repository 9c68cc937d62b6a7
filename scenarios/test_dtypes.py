"""Would catch a collective that gets the sum wrong in one dtype, or in fewer digits.

One returned garbage: https://github.com/tensorflow/tensorflow/issues/41980.
"""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.scenarios(workloads=["linear"], optimizers=("adam", "momentum"))
def test_each_dtype_is_summed_in_its_own_digits(check, dtype):
    check(dtype=dtype).raise_for_status()
