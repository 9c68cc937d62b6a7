"""A run that passes by its own shards says where something is taken of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distbench

pytestmark = pytest.mark.cluster
OWN = Path(__file__).with_name("own_programs.py")
NOTE = "what is taken of the own shard begins at"


@pytest.mark.parametrize(
    ("target", "cluster", "file", "line"),
    [
        (
            "distbench.unusual.grouping:BatchStatistics",
            "mwms:2",
            "grouping.py",
            "mean, variance = tf.nn.moments(x, axes=[0])",
        ),
        # Of what replicas exchange, one device has nothing to show.
        (
            f"{OWN}:CentresOnItsOwn",
            "mirrored:2",
            OWN.name,
            "centred = outputs - tf.reduce_mean(outputs)",
        ),
    ],
)
def test_the_line_is_named(target: str, cluster: str, file: str, line: str) -> None:
    [run] = distbench.check(target, cluster, tiers=["bounded"]).runs
    assert re.search(rf"{NOTE} \S*{file}:\d+, `{re.escape(line)}`", run.message)


@pytest.mark.parametrize(
    "target",
    [
        "distbench.unusual.reducing:MeanAggregator",  # nothing is taken of the shard
        "distbench.unusual.grouping:Dropout",  # random numbers are not its
    ],
)
def test_there_is_no_line_where_nothing_is_taken_of_the_shard(target: str) -> None:
    verdict = distbench.check(target, "mirrored:2", tiers=["bounded"])
    assert verdict
    assert all(NOTE not in run.message for run in verdict.runs)
