"""Says of workers that came to a collective with other shapes if the split made them.

What has a row for each example has other shapes where shards have other sizes, and the
bench splits unevenly where nobody asks for another split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from distbench.split import tell_split

_NUMBER = re.compile(r"-?\w+")


def describe_uneven(waits: Iterable[Mapping[str, Any]], shards: Sequence[int]) -> str:
    """That shapes differ as the shards do, and which split makes them even.

    Args:
        waits: In what each task waits; see `find_wait`.
        shards: Examples of each replica; empty where they are not known.

    Returns:
        Empty if the shapes do not differ, or otherwise than the shards do.
    """
    waits = list(waits)
    if len({wait["number"] for wait in waits}) != 1:
        return ""
    shapes = {_read_shape(text) for wait in waits for text in wait["shapes"]}
    pairs = list(combinations(sorted(shapes, key=str), 2))
    if not pairs or not all(_are_as_shards(*pair, shards) for pair in pairs):
        return ""
    sizes = [str(size) for size in shards]
    return (
        f"These shapes differ as the shards do, which hold {', '.join(sizes[:-1])} and "
        f"{sizes[-1]} examples: what is exchanged needs even ones, as with "
        f"{tell_split(shards)}, or has to be padded to one size"
    )


def _read_shape(text: str) -> tuple[str, ...]:
    return tuple(_NUMBER.findall(text))


def _are_as_shards(
    one: Sequence[str], other: Sequence[str], shards: Sequence[int]
) -> bool:
    """Whether shapes differ along one axis, in the proportion of some two shards."""
    axes = [
        n for n, sizes in enumerate(zip(one, other, strict=False)) if len({*sizes}) > 1
    ]
    if len(one) != len(other) or len(axes) != 1:
        return False
    found = one[axes[0]], other[axes[0]]
    if not all(size.isdecimal() for size in found):
        return False
    left, right = map(int, found)
    return any(
        left * b == right * a or left * a == right * b
        for a, b in combinations(shards, 2)
        if a != b and a and b
    )
