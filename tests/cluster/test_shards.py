"""Variables in shards on parameter servers, slots and embeddings with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster
SUBJECTS = Path(__file__).with_name("shard_subjects.py")


def _check(name: str, partitioner: str, **options):
    return distbench.check(
        f"{SUBJECTS}:{name}", "ps:1+2", partitioner=partitioner, **options
    )


@pytest.mark.parametrize(
    ("name", "partitioner", "options"),
    [
        ("Sharded", "fixed:2", {}),
        pytest.param("Sharded", "min:8:3", {}, marks=pytest.mark.nightly),
        ("make_adam", "max:8", {"workload": "linear"}),
        pytest.param(
            "make_adam",
            "fixed:3",
            {"workload": "embedding"},
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_shards_and_their_slots_are_as_on_one_device(
    name: str, partitioner: str, options: dict
) -> None:
    verdict = _check(name, partitioner, **options)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert all(run.checked for run in verdict.runs if run.status is Status.PASS)


def test_gradients_of_shards_that_are_swapped_are_found() -> None:
    verdict = _check("make_swapping", "max:8", workload="linear", tier="bounded")
    first = verdict.findings[0]
    assert (first.code, first.phase) == ("wrong-pairing", "reduced_gradient")
    assert {"kernel/part_0", "kernel/part_1"} <= set(first.variables)
