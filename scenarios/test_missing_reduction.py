"""Would catch a bench that does not notice when nobody sums the gradients.

The flag of https://www.tensorflow.org/api_docs/python/tf/keras/optimizers/legacy/Optimizer#apply_gradients
hands the sum to the user; one who forgets it trains one model for each replica, as in
https://github.com/keras-team/keras/issues/19308.
"""

from __future__ import annotations

import pytest


@pytest.mark.scenarios(
    workloads=["linear", "mlp"],
    clusters=["mirrored:2", "mwms:2", "mwms:4"],
    paths=["none"],
    kinds=["mirrored", "mwms"],
)
def test_missing_reduction_is_found_on_every_replica(check, replicas):
    verdict = check()
    assert str(verdict.status) == "fail"
    for run in verdict.runs:
        if str(run.status) == "skipped":
            continue
        first = run.findings[0]
        assert (first.code, first.phase) == ("missing-reduction", "reduced_gradient")
        assert len(first.replicas) == replicas
