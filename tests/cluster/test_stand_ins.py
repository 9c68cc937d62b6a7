"""Variables are known by whatever stands for them."""

from __future__ import annotations

import pytest
from one_run import check_one

from distbench.verdict import Status

pytestmark = pytest.mark.cluster


def test_a_tape_tells_of_what_variables_wrap() -> None:
    """Else what the rule is given, which is half of it, would pass for the gradient."""
    run = check_one("distbench.unusual.keras3:Keras3GradientsOfValues")
    assert (run.status, run.message) == (Status.PASS, "")
