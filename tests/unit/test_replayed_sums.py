"""The reductions that are replayed give exact sums, each in its own order."""

from __future__ import annotations

import numpy as np
import pytest
from imported_scripts import import_scripts

with import_scripts("replayed_sums") as _scripts:
    REDUCTIONS = _scripts["replayed_sums"].REDUCTIONS

_EVERY = pytest.mark.parametrize("name", sorted(REDUCTIONS))


@_EVERY
@pytest.mark.parametrize("replicas", [1, 2, 3, 5, 8, 13, 16, 20, 64])
def test_sums_of_integers_are_exact(name: str, replicas: int) -> None:
    rng = np.random.default_rng(replicas)
    addends = rng.integers(-1000, 1000, size=(replicas, 29))
    total = REDUCTIONS[name](addends.astype(np.float32))
    assert total.dtype == np.float32
    assert np.array_equal(total, addends.sum(0))


@_EVERY
def test_each_replica_is_taken_up_once(name: str) -> None:
    addends = 2.0 ** np.arange(20)[:, None] * np.ones(7)
    assert np.all(REDUCTIONS[name](addends) == 2.0**20 - 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 2049 lies between two numbers of float16, and the even one is 2048.
        ("all to one", [2048, 2048, 2048]),
        ("ring", [2048, 2050, 2048]),
        ("tree", [2048, 2048, 2048]),
    ],
)
def test_each_adds_in_its_own_order(name: str, expected: list[int]) -> None:
    addends = np.float16([[2048] * 3, [1] * 3, [1] * 3])
    assert REDUCTIONS[name](addends).tolist() == expected


def test_a_tree_adds_neighbours_and_hosts_add_among_themselves_first() -> None:
    addends = np.float16([[1], [1], [2048], [0]])
    assert REDUCTIONS["all to one"](addends).item() == 2050
    assert REDUCTIONS["tree"](addends[::-1]).item() == 2050
    hosts = np.float16([[2048]] + [[0]] * 7 + [[1]] * 8)
    assert REDUCTIONS["all to one"](hosts).item() == 2048
    assert REDUCTIONS["hierarchical"](hosts).item() == 2056
