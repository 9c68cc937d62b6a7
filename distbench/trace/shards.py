"""Puts the shards of variables together, for a run that cuts them otherwise."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distbench.trace import SparseRows, Trace, Value, Values, VariableInfo

_PART = re.compile(r"/part_(\d+)(?=/|$)")
"""How a shard and what belongs to it, such as a slot, is told from the others."""


def join_shards(trace: Trace, other: Trace) -> Trace:
    """The trace with whole variables in the place of shards that the other run lacks.

    Args:
        trace: Its `rows/part_1` continues `rows/part_0` along the first axis, as
            `rows/part_1/m` does `rows/part_0/m`.
        other: What it is to be compared with; where both cut alike, shards stay.
    """
    infos = trace.by_path
    theirs = group_shards(v.path for v in other.variables)
    joined = {
        name: [infos[path] for path in paths]
        for name, paths in group_shards(infos).items()
        if name in theirs
        and paths != theirs[name]
        and all(_PART.search(path) and infos[path].shape for path in paths)
    }
    if not joined or trace.digested:
        return trace
    names = {v.path: name for name, parts in joined.items() for v in parts}
    variables: dict[str, VariableInfo] = {}
    for info in trace.variables:
        path = names.get(info.path, info.path)
        shape = info.shape
        if path in joined:
            shape = (sum(v.shape[0] for v in joined[path]), *shape[1:])
        owner = names.get(info.of, info.of)
        variables.setdefault(path, replace(info, path=path, of=owner, shape=shape))
    found = Values(trace.values)
    values = found.keep(lambda key: key.variable not in names)
    for key in found:
        name = names.get(key.variable)
        if name is None or key.variable != joined[name][0].path:
            continue
        pieces = [found.get(replace(key, variable=v.path)) for v in joined[name]]
        if all(piece is not None for piece in pieces):
            values[replace(key, variable=name)] = _join(pieces, joined[name])
    return replace(trace, variables=tuple(variables.values()), values=values)


def group_shards(paths: Iterable[str]) -> dict[str, list[str]]:
    """Paths by what they are without their number of a shard, in its order."""
    groups: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for path in paths:
        number = _PART.search(path)
        groups[_PART.sub("", path)].append((int(number[1]) if number else 0, path))
    return {name: [path for _, path in sorted(found)] for name, found in groups.items()}


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
            if pieces[0].shape == wanted[parts[0]]:
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


def _join(pieces: Sequence[Value], infos: Sequence[VariableInfo]) -> Value:
    sparse = [piece for piece in pieces if isinstance(piece, SparseRows)]
    if len(sparse) < len(pieces):
        return np.concatenate(
            [p.to_dense() if isinstance(p, SparseRows) else p for p in pieces]
        )
    sizes = [info.shape[0] for info in infos]
    firsts = np.cumsum([0, *sizes[:-1]])
    return SparseRows(
        indices=np.concatenate(
            [piece.indices + first for piece, first in zip(sparse, firsts, strict=True)]
        ),
        values=np.concatenate([piece.values for piece in sparse]),
        shape=(sum(sizes), *sparse[0].shape[1:]),
    )
