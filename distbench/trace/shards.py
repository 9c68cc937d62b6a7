"""Puts the shards of variables together, for a run that cuts them otherwise."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

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
    infos = {v.path: v for v in trace.variables}
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
