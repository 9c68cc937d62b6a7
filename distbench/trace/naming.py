"""Finds the variable of one device that a variable of the cluster is.

TensorFlow names a slot after the scopes in which the step came to make it. Those of
conditionals are numbered anew in each graph: what a loss scale makes under `cond_1` on
one device may be made under `cond_3` on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from distbench.trace import VariableInfo
from distbench.trace.owners import rename_owner

_Key = tuple[object, ...]


def pair_names(
    ours: Sequence[VariableInfo], theirs: Sequence[VariableInfo]
) -> Mapping[str, str]:
    """Which of our state goes by another path than theirs, and by which.

    Variables of a model keep their paths. Of the rest those are paired that agree in
    role, owner, shape, dtype and the last parts of the path, longest agreement first;
    several that agree alike are paired in their order, if there are as many of both.

    Args:
        ours: What this task has, in the order of its discovery.
        theirs: What the other has.

    Returns:
        Their path by ours, without those that are the same.
    """
    equal = {info.path for info in ours} & {info.path for info in theirs}
    left = [i for i in ours if i.path not in equal and i.role != "variable"]
    right = [i for i in theirs if i.path not in equal and i.role != "variable"]
    found: dict[str, str] = {}
    depth = max((i.path.count("/") for i in (*left, *right)), default=0) + 1
    for kept in range(depth, 0, -1):
        groups = _group(right, kept)
        for key, mine in _group(left, kept).items():
            others = groups.get(key, [])
            if len(mine) == len(others):
                found |= zip(mine, others, strict=True)
        taken = set(found.values())
        left = [info for info in left if info.path not in found]
        right = [info for info in right if info.path not in taken]
    return found


def _group(infos: Iterable[VariableInfo], kept: int) -> dict[_Key, list[str]]:
    groups: dict[_Key, list[str]] = {}
    for info in infos:
        tail = tuple(info.path.split("/")[-kept:])
        key = (info.role, info.of, info.shape, info.dtype, tail)
        groups.setdefault(key, []).append(info.path)
    return groups


def pair_runs(
    ours: Sequence[VariableInfo], theirs: Sequence[VariableInfo]
) -> Mapping[str, str]:
    """As `pair_names`, for runs that may have named their model otherwise, too.

    Keras numbers layers by how many a process made before: what is `dense/kernel` in
    one run is `dense_2/kernel` in a later one. If both list as many variables that the
    other lacks, of the same shapes in the same order, they are taken to be the same.
    """
    named = {info.path for info in ours if info.role == "variable"}
    known = {info.path for info in theirs if info.role == "variable"}
    mine = [i for i in ours if i.role == "variable" and i.path not in known]
    others = [i for i in theirs if i.role == "variable" and i.path not in named]
    kinds = [[(i.shape, i.dtype) for i in infos] for infos in (mine, others)]
    found: dict[str, str] = {}
    if kinds[0] == kinds[1]:
        found = {m.path: o.path for m, o in zip(mine, others, strict=True)}
    renamed = {}
    for info in ours:
        owner = found.get(info.of, info.of)
        path = rename_owner(info.path, info.of, owner) if info.of else info.path
        renamed[path] = info.path
        found[info.path] = found.get(info.path, path)
    again = [
        replace(i, path=found[i.path], of=found.get(i.of, i.of) if i.of else "")
        for i in ours
    ]
    for path, other in pair_names(again, theirs).items():
        found[renamed.get(path, path)] = other
    return {path: other for path, other in found.items() if path != other}
