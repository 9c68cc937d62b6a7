"""Some of the seeded faults and correct programs, one for each stage of a step.

`distbench selftest` runs all of them; docs/detection.md has what it says.
"""

from __future__ import annotations

import pytest

from distbench.selftest.matrix import mark_cell
from distbench.selftest.run import plan_selftest, run_selftest
from distbench.verdict import Status

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        pytest.param("mean-over-own-tokens", "mwms:4", marks=LONG),
        pytest.param("patched-apply-sums", "mwms:2", marks=LONG),
        ("rows-divided-by-owners", "mirrored:2"),
        ("reduced-while-next-step-runs", "mirrored:2"),
        pytest.param("decay-times-replicas", "mirrored:2", marks=LONG),
        ("sent-in-half-precision", "mirrored:2"),
        ("first-replica-alone-begins-anew", "mirrored:2"),
        pytest.param("mean-of-means-under-statistics", "mwms:4", marks=LONG),
        pytest.param("scale-not-undone", "mirrored:2", marks=LONG),
        ("statistics-of-others-are-constants", "mwms:2"),
        pytest.param("places-in-the-own-shard", "central:2", marks=LONG),
        # Smaller than the scatter of what the step draws.
        ("followed-by-each-replica", "mwms:2"),
        pytest.param("own-mean-under-noise-in-turns", "mirrored:2", marks=LONG),
        ("decayed-for-each-replica-between", "mirrored:2"),
        pytest.param("followed-for-each-replica-between", "mwms:2", marks=LONG),
    ],
)
def test_a_seeded_fault_is_found_and_named(name: str, cluster: str) -> None:
    (cell,) = run_selftest(plan_selftest([name], [cluster])).faults
    assert mark_cell(cell) == "ok", (cell.found, cell.explanation)


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("token-count", "mwms:2"),
        pytest.param("two-optimizers", "mirrored:2", marks=LONG),
        ("batch-statistics", "mwms:2"),
        pytest.param("dropout", "mirrored:2", marks=LONG),
        ("overflow-on-one-replica", "mwms:2"),
        ("collects-own-gradients", "mirrored:2"),
        # A feature travels with the count that scales what is trained.
        ("count-of-all-under-statistics", "mwms:2"),
        pytest.param("statistics-of-all", "central:2", marks=LONG),
        ("branches-by-chance", "mirrored:2"),
        ("updated-between-steps", "mwms:2"),
    ],
)
def test_an_unusual_program_passes(name: str, cluster: str) -> None:
    (passed,) = run_selftest(plan_selftest([name], [cluster])).unusual
    assert passed.status is Status.PASS, passed.found
