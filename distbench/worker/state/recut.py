"""State of variables in shards, for a run that cuts them otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distbench.trace.shards import group_shards


def recut_shards(
    saved: Mapping[str, np.ndarray[Any, Any]], wanted: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray[Any, Any]]:
    """What each wanted shard holds of what was saved in others, or whole.

    Args:
        saved: Arrays by path; `rows/part_1` continues `rows/part_0` along the first
            axis, as `rows/part_1/m` does `rows/part_0/m`.
        wanted: The shape of each path that is wanted.

    Returns:
        Arrays by wanted path. Left out is what was not saved, and what has another
        shape when it is put together.
    """
    ours, theirs = group_shards(wanted), group_shards(saved)
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, parts in ours.items():
        pieces = [np.asarray(saved[path]) for path in theirs.get(name, ())]
        if not pieces:
            continue
        if parts == theirs[name] and len(parts) == 1:
            found[parts[0]] = pieces[0]
            continue
        if any(piece.ndim == 0 for piece in pieces):
            continue
        joined = np.concatenate(pieces)
        sizes = [wanted[path][0] for path in parts]
        if sum(sizes) == len(joined) and joined.shape[1:] == wanted[parts[0]][1:]:
            cuts = np.cumsum(sizes)[:-1]
            found |= zip(parts, np.split(joined, cuts), strict=True)
    return found
