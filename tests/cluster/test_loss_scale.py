"""Loss scales: what they do when a gradient overflows, and mistakes with them."""

from __future__ import annotations

import pytest

from distbench.selftest.run import plan_selftest, run_selftest
from distbench.verdict import Status

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("last-overflows", "mirrored:2"),
        ("all-overflow", "mwms:2"),
        ("keras2-last-overflows", "mwms:2"),
        ("keras3-all-overflow", "mirrored:2"),
    ],
)
def test_a_step_that_all_replicas_skip_passes(name: str, cluster: str) -> None:
    """Rows without the overflowing example stay comparable, and so do the slots."""
    (passed,) = run_selftest(plan_selftest([name], [cluster])).unusual
    assert passed.status is Status.PASS, passed.found
