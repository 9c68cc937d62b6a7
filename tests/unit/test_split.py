"""The split of the global batch over the replicas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distbench.errors import BadInputError
from distbench.split import shard_slices, split_unevenly


def test_eight_examples_on_two_replicas_are_five_and_three() -> None:
    assert split_unevenly(8, 2) == (5, 3)
    assert shard_slices((5, 3)) == (slice(0, 5), slice(5, 8))


@given(st.integers(1, 40), st.integers(0, 300))
def test_every_example_is_in_one_shard_and_no_shard_is_empty(
    replicas: int, spare: int
) -> None:
    sizes = split_unevenly(replicas + spare, replicas)
    assert len(sizes) == replicas
    assert min(sizes) >= 1
    assert sum(sizes) == replicas + spare
    rows = [row for part in shard_slices(sizes) for row in range(part.start, part.stop)]
    assert rows == list(range(replicas + spare))


@given(st.integers(2, 40))
def test_shards_are_uneven_where_four_examples_per_replica_are_there(
    replicas: int,
) -> None:
    assert len(set(split_unevenly(4 * replicas, replicas))) > 1


def test_fewer_examples_than_replicas_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"3 examples, 4 replicas\. Use 4"):
        split_unevenly(3, 4)
