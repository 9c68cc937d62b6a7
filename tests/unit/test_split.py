"""The split of the global batch over the replicas."""

from __future__ import annotations

import pytest
from input_checks import check_split, check_uneven

from distbench.errors import BadInputError
from distbench.split import shard_slices, split_alike, split_unevenly, tell_split


def test_eight_examples_on_two_replicas_are_five_and_three() -> None:
    assert split_unevenly(8, 2) == (5, 3)
    assert shard_slices((5, 3)) == (slice(0, 5), slice(5, 8))


@pytest.mark.parametrize(
    ("sizes", "examples", "shares"),
    [
        ((5, 3), 5, (3, 2)),
        ((5, 3), 1, (1, 0)),
        ((8, 0), 5, (5, 0)),
        ((2, 2, 2, 2), 3, (1, 1, 1, 0)),
        ((4, 4), 12, (6, 6)),
    ],
)
def test_a_batch_of_another_size_is_shared_out_in_the_same_proportions(
    sizes: tuple[int, ...], examples: int, shares: tuple[int, ...]
) -> None:
    assert split_alike(sizes, examples) == shares


@pytest.mark.parametrize(
    ("replicas", "spare"), [(1, 0), (1, 7), (2, 0), (2, 5), (3, 300), (40, 17)]
)
def test_every_example_is_in_one_shard_and_no_shard_is_empty(
    replicas: int, spare: int
) -> None:
    check_split(replicas, spare)


@pytest.mark.parametrize("replicas", [2, 3, 8, 40])
def test_shards_are_uneven_where_four_examples_per_replica_are_there(
    replicas: int,
) -> None:
    check_uneven(replicas)


def test_fewer_examples_than_replicas_are_refused() -> None:
    told = r"3 examples, 4 replicas\. Use 4 examples or more, or .* split 1,1,1,0, "
    with pytest.raises(BadInputError, match=told):
        split_unevenly(3, 4)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((8, 4), "'split=(6, 6)'"),
        ((5, 4, 0), "'split=(3, 3, 3)'"),
        ((5, 4), "'split=(5, 5)' of 10 examples"),
    ],
)
def test_the_option_that_makes_shards_even_is_told(
    sizes: tuple[int, ...], told: str
) -> None:
    assert tell_split(sizes) == told
