"""A sum that is divided by a norm in which some variables count too often."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.joined import (
    collect_all,
    divide_by,
    fit_ratios,
)
from distbench.diagnose.names import name_variables
from distbench.trace.numbers import measure_norm

_APART = 1e-2
"""Share of what factors are beyond 1 by which they differ, if they are not one."""
_MOST_PARTED = 8
"""Of more variables than these not every part is tried."""


def explain_by_counted_norm(context: Context) -> Iterator[Hypothesis]:
    """A sum is divided by its norm, in which some variables count N times.

    Where each replica has a shard of some variables and all of others, the squares of
    the shards have to be added up over the replicas, and those of the others not. If
    all variables counted N times there would be one factor, which tells of no norm; so
    several have to be seen. With two of them no ε can be told as well.
    """
    ratios = fit_ratios(context)
    seen = np.array(list(ratios.values()))
    if not ratios or np.ptp(seen) <= _APART * np.max(np.abs(seen - 1)):
        return
    n, steps = context.replicas, {context.cases[n].key.step for n in ratios}
    squares = [_measure_squares(context, context.cases[n].key.step) for n in ratios]
    names = tuple(squares[0])
    if any(tuple(one) != names for one in squares):
        return
    whole = np.array([np.sqrt(sum(one.values())) for one in squares])
    for often in _list_parts(context, names):
        joined = np.array(
            [
                np.sqrt(sum(n * s if name in often else s for name, s in one.items()))
                for one in squares
            ]
        )
        if predicted := divide_by(context, ratios, joined, whole, adds=len(steps) > 2):
            yield Hypothesis(
                code="double-reduction",
                predicted=predicted,
                detail="the sum is divided by the norm of all gradients, or clipped by "
                f"it, and the squares of {name_variables(often)} are added up in that "
                "over the replicas though each of them has all of these: they count "
                f"N = {n} times",
                of_due=True,
            )


def _measure_squares(context: Context, step: int) -> Mapping[str, float]:
    """The squared norm of the sum of each variable's gradients."""

    def measure() -> Mapping[str, float]:
        own = collect_all(context, step, None)
        found: dict[str, float] = {}
        for key in own[0] if own else ():
            size = measure_norm(np.sum([one[key] for one in own], axis=0)) ** 2
            found[key.variable] = found.get(key.variable, 0.0) + size
        return found

    return context.work_out(("squares", step), measure)


def _list_parts(context: Context, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Some of the variables: any of few, of many those of one rank or one alone."""
    if len(names) <= _MOST_PARTED:
        for count in range(1, len(names)):
            yield from itertools.combinations(names, count)
        return
    ranks = {name: len(context.infos[name].shape) for name in names}
    kinds = [{name} for name in names]
    kinds += [{v for v in names if ranks[v] == rank} for rank in set(ranks.values())]
    for kind in kinds:
        yield tuple(name for name in names if name in kind)
        yield tuple(name for name in names if name not in kind)
