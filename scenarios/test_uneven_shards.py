"""Would catch a mean over replicas whose shards differ in size.

Such a mean of means is right where all have as many examples, and nowhere else:
https://github.com/huggingface/transformers/issues/34191.
"""

from __future__ import annotations

import pytest

SPLITS = [(6, 2), (8, 0)]
PATHS = ["default", "aggregator", "aggregator-mean", "user"]


@pytest.mark.parametrize("split", SPLITS, ids=["uneven", "empty"])
@pytest.mark.scenarios(
    workloads=["linear"], optimizers=("adam", "momentum"), paths=PATHS
)
def test_each_example_weighs_alike(check, split):
    check(split=split).raise_for_status()


@pytest.mark.parametrize("split", SPLITS, ids=["uneven", "empty"])
@pytest.mark.scenarios(workloads=["embedding"], optimizers=("adam", "lazy_adam"))
def test_rows_of_a_small_shard_count(check, split):
    check(split=split).raise_for_status()
