"""Sums over replicas as libraries make them, addition by addition, in NumPy.

Each takes the addends as an array [replicas, elements], of any dtype that NumPy adds,
and rounds after every addition, as a reduction does that keeps the dtype on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Addends = npt.NDArray[Any]
HOST = 8
"""Replicas of a host, where hosts sum among themselves first."""


def sum_all_to_one(addends: Addends) -> Addends:
    """One replica takes up the others in their order."""
    total = addends[0]
    for one in addends[1:]:
        total = total + one
    return total


def sum_along_ring(addends: Addends) -> Addends:
    """Every replica begins a part of its own, to which the next ones add (Baidu, 2017).

    Part r begins with replica r and goes round once.
    """
    replicas, size = addends.shape
    begin = np.repeat(np.arange(replicas), _share_out(size, replicas))
    places = np.arange(size)
    total = addends[begin, places]
    for hop in range(1, replicas):
        total = total + addends[(begin + hop) % replicas, places]
    return total


def sum_in_tree(addends: Addends) -> Addends:
    """Neighbours add up in pairs, and what they have again; an odd one waits."""
    while len(addends) > 1:
        pairs = len(addends) // 2 * 2
        halved = addends[:pairs:2] + addends[1:pairs:2]
        addends = np.concatenate([halved, addends[pairs:]])
    return addends[0]


def sum_by_hosts(addends: Addends) -> Addends:
    """The replicas of each host along a ring, then the hosts in a tree."""
    hosts = [addends[i : i + HOST] for i in range(0, len(addends), HOST)]
    return sum_in_tree(np.stack([sum_along_ring(host) for host in hosts]))


REDUCTIONS: Mapping[str, Callable[[Addends], Addends]] = {
    "all to one": sum_all_to_one,
    "ring": sum_along_ring,
    "tree": sum_in_tree,
    "hierarchical": sum_by_hosts,
}


def _share_out(size: int, parts: int) -> list[int]:
    """Sizes of parts that are as equal as can be."""
    return [len(part) for part in np.array_split(np.arange(size), parts)]
