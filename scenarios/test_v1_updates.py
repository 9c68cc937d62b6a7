"""Would catch updates, counters and powers of TensorFlow 1's optimizers done N times.

`_distributed_apply` sums, updates, finishes and counts across the replicas, once;
`skip_gradients_aggregation=True` leaves the sum to each replica's code, as in
https://github.com/keras-team/keras/issues/19308 to nobody's. A counter for every
replica is https://github.com/horovod/horovod/issues/2715.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "v1.py"


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("NoCounter", "mirrored:2"),
        ("SkipsAggregation", "mirrored:2"),
        ("DistributedApply", "mwms:2"),
        ("WithOwnRule", "mirrored:2"),
    ],
)
def test_each_step_is_applied_and_counted_once(distbench, name, cluster):
    verdict = distbench.check(f"{PROGRAMS}:{name}", cluster, tier="bounded")
    verdict.raise_for_status()
    assert all(run.checked > 100 for run in verdict.runs)


def test_a_rule_that_needs_rows_added_up_is_noted(distbench):
    verdict = distbench.check(
        f"{PROGRAMS}:LeavesRowsApart", "mirrored:2", tier="bounded"
    )
    verdict.raise_for_status()
    assert "if the repeated rows of a sparse gradient" in verdict.runs[0].message


@pytest.mark.parametrize(
    ("name", "cluster", "code", "phase", "variables", "ratio"),
    [
        (
            "SumsTwice",
            "mirrored:2",
            "double-reduction",
            "reduced_gradient",
            ("table", "kernel"),
            2.0,
        ),
        (
            "FinishesForReplicas",
            "mwms:2",
            "slot-repeated",
            "slot",
            ("power",),
            2.0,
        ),
        (
            "CountsReplicas",
            "mirrored:2",
            "update-repeated",
            "variable",
            ("steps",),
            2.0,
        ),
    ],
)
def test_what_is_done_once_for_each_replica_is_named(
    distbench, name, cluster, code, phase, variables, ratio
):
    verdict = distbench.check(f"{PROGRAMS}:{name}", cluster, tier="bounded")
    (found,) = verdict.findings
    assert (found.code, found.phase, found.variables) == (code, phase, variables)
    assert found.ratio == pytest.approx(ratio, rel=1e-6)
    assert found.origin == "subject"


def test_a_sum_missing_where_variables_are_shared_is_the_sum_alone(distbench):
    """The first update changes what the second replica computes from."""
    verdict = distbench.check(f"{PROGRAMS}:NobodySums", "central:2", tier="bounded")
    first = verdict.findings[0]
    assert (first.code, first.phase) == ("missing-reduction", "reduced_gradient")
    assert first.replicas == (0, 1)
    assert not {"loss", "local_gradient"} & {f.phase for f in verdict.findings}
    assert "unexplained" not in {f.code for f in verdict.findings}
