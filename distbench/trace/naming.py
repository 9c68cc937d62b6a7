"""Finds the variable of one device that a variable of the cluster is.

TensorFlow names a slot after the scopes in which the step came to make it. Those of
conditionals are numbered anew in each graph: what a loss scale makes under `cond_1` on
one device may be made under `cond_3` on a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from distbench.trace import VariableInfo
from distbench.trace.owners import rename_owner

_Key = tuple[object, ...]


def pair_names(
    ours: Sequence[VariableInfo], theirs: Sequence[VariableInfo]
) -> Mapping[str, str]:
    """Which of our state goes by another path than theirs, and by which.

    Variables of a model keep their paths, or have a scope around them: Keras 2 names a
    layer after its model where that is open still, as after a layer that switches to
    cross-replica context while it is built.

    Args:
        ours: What this task has, in the order of its discovery.
        theirs: What the other has.

    Returns:
        Their path by ours, without those that are the same.
    """
    return _pair_state(ours, theirs, _pair_scoped(ours, theirs))


def pair_runs(
    ours: Sequence[VariableInfo], theirs: Sequence[VariableInfo]
) -> Mapping[str, str]:
    """As `pair_names`, for runs that may have named their model otherwise, too.

    Keras numbers layers by how many a process made before: what is `dense/kernel` in
    one run is `dense_2/kernel` in a later one. If both list as many variables that the
    other lacks, of the same shapes in the same order, they are taken to be the same.
    """
    mine, others = _list_variables(ours, theirs), _list_variables(theirs, ours)
    kinds = [[(i.shape, i.dtype) for i in infos] for infos in (mine, others)]
    found: dict[str, str] = {}
    if kinds[0] == kinds[1]:
        found = {m.path: o.path for m, o in zip(mine, others, strict=True)}
    return _pair_state(ours, theirs, found)


def _list_variables(
    ours: Sequence[VariableInfo], theirs: Sequence[VariableInfo]
) -> list[VariableInfo]:
    """Variables of our model whose paths they have for none."""
    known = {info.path for info in theirs if info.role == "variable"}
    return [i for i in ours if i.role == "variable" and i.path not in known]


def _pair_scoped(
    ours: Sequence[VariableInfo], theirs: Sequence[VariableInfo]
) -> dict[str, str]:
    """Variables of which one path is the other's in a scope, where only one is."""
    mine, others = _list_variables(ours, theirs), _list_variables(theirs, ours)
    alike = [(i.path, other.path) for i in mine for other in others if _nests(i, other)]
    count = Counter(path for pair in alike for path in pair)
    return {path: other for path, other in alike if count[path] == count[other] == 1}


def _nests(info: VariableInfo, other: VariableInfo) -> bool:
    inner, outer = sorted((info.path, other.path), key=len)
    is_alike = (info.shape, info.dtype) == (other.shape, other.dtype)
    return is_alike and outer.endswith(f"/{inner}")


def _pair_state(
    ours: Sequence[VariableInfo],
    theirs: Sequence[VariableInfo],
    variables: Mapping[str, str],
) -> Mapping[str, str]:
    """What else goes by another path, once the variables of the model are paired.

    Those are paired that agree in role, owner, shape, dtype and the last parts of the
    path, longest agreement first; several that agree alike are paired in their order,
    if there are as many of both.

    Args:
        ours: What this task has.
        theirs: What the other has.
        variables: Paths of their model's variables by ours, where they differ.
    """
    found, renamed = dict(variables), {}
    for info in ours:
        owner = found.get(info.of, info.of)
        path = rename_owner(info.path, info.of, owner) if info.of else info.path
        renamed[path] = info.path
        found[info.path] = found.get(info.path, path)
    again = [
        replace(i, path=found[i.path], of=found.get(i.of, i.of) if i.of else "")
        for i in ours
    ]
    for path, other in _pair_rest(again, theirs).items():
        found[renamed.get(path, path)] = other
    return {path: other for path, other in found.items() if path != other}


def _pair_rest(
    ours: Sequence[VariableInfo], theirs: Sequence[VariableInfo]
) -> Mapping[str, str]:
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
