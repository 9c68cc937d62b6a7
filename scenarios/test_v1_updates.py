"""Would catch updates, counters and powers of TensorFlow 1's optimizers done N times.

`_distributed_apply` sums, updates, finishes and counts across the replicas, once;
`skip_gradients_aggregation=True` leaves the sum to each replica's code, as in
https://github.com/keras-team/keras/issues/19308 to nobody's. A counter for every
replica is https://github.com/horovod/horovod/issues/2715.
"""

from __future__ import annotations

import pytest

NAMED = {
    "SumsTwice": ("double-reduction", "reduced_gradient", ("table", "kernel")),
    "FinishesForReplicas": ("slot-repeated", "slot", ("power",)),
    "CountsReplicas": ("update-repeated", "variable", ("steps",)),
}
"""Code, phase and variables of what is done once for each replica."""


@pytest.mark.programs(
    "v1.py",
    "NoCounter",
    "SkipsAggregation",
    "WithOwnRule",
    clusters=["mirrored:2"],
    kinds=["mirrored", "mwms"],
)
def test_each_step_is_applied_and_counted_once(check):
    check(tier="bounded").raise_for_status()


@pytest.mark.programs("v1.py", "DistributedApply", clusters=["mwms:2"])
def test_what_runs_across_the_replicas_runs_once(check):
    check(tier="bounded").raise_for_status()


@pytest.mark.programs("v1.py", "LeavesRowsApart", clusters=["mirrored:2"])
def test_a_rule_that_needs_rows_added_up_is_noted(check):
    verdict = check(tier="bounded")
    verdict.raise_for_status()
    assert "if the repeated rows of a sparse gradient" in verdict.runs[0].message


@pytest.mark.programs("v1.py", *NAMED, clusters=["mirrored:2"])
def test_what_is_done_once_for_each_replica_is_named(check, case, replicas):
    (found,) = check(tier="bounded").findings
    assert (found.code, found.phase, found.variables) == NAMED[case.optimizer]
    assert found.ratio == pytest.approx(replicas, rel=1e-6)
    assert found.origin == "subject"


@pytest.mark.programs("v1.py", "NobodySums", clusters=["central:2"], kinds=["central"])
def test_where_variables_are_shared_a_missing_sum_is_all_that_is_wrong(check):
    """The first update changes what the second replica computes from."""
    found = check(tier="bounded").findings
    assert (found[0].code, found[0].phase) == ("missing-reduction", "reduced_gradient")
    assert found[0].replicas == (0, 1)
    assert not {"loss", "local_gradient"} & {f.phase for f in found}
    assert "unexplained" not in {f.code for f in found}
