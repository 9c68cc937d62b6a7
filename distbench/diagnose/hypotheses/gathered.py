"""Gathered gradients that are added up along another axis than the replicas'."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import SUMMED
from distbench.trace.numbers import Array

Reading = Callable[[Context, Mapping[str, Pair]], Mapping[str, Array]]
"""What comes of some variables of one update, given a wrong value of each."""


def explain_by_neighbours(context: Context) -> Iterator[Hypothesis]:
    """A gather lays the replicas one after the other, and N neighbours are added up.

    Of flat gradients that is a shape of [-1, N] in place of [N, -1]. The buffer may
    hold one variable or all of them; of one that is gathered in its own shape it is
    rows that are neighbours.
    """
    n = context.replicas
    if context.phase not in SUMMED or n == 1:
        return
    updates = context.group_cases(lambda case: (case.key.step, case.key.call))
    readings: tuple[tuple[str, str, Reading], ...] = (
        ("", "elements", partial(_read_each, by_row=False)),
        ("", "rows", partial(_read_each, by_row=True)),
        (" of all variables", "elements", _read_all),
    )
    for of_all, unit, read in readings:
        predicted: dict[int, Array] = {}
        for numbered in updates.values():
            made = read(context, {case.key.variable: case for _, case in numbered})
            predicted |= {
                number: made[case.key.variable]
                for number, case in numbered
                if case.key.variable in made
            }
        yield Hypothesis(
            code="wrong-pairing",
            predicted=predicted,
            detail=f"a gathered buffer holds one replica's gradient{of_all} after the "
            f"other's, and N = {n} {unit} that stand side by side in it are added up, "
            "in place of the same one of each replica: it is read as [-1, N, ...] and "
            "not as [N, -1, ...]",
            advice="Reshape what all_gather returns to [N, ...] and add up over axis "
            "0, or let all_reduce add up.",
        )


def _read_each(
    context: Context, cases: Mapping[str, Pair], *, by_row: bool
) -> dict[str, Array]:
    """Of a buffer for each variable, whose units are elements or rows."""
    made = {}
    for path, case in cases.items():
        terms, shape = context.find_terms(case), context.infos[path].shape
        if terms and terms[0].shape == shape:
            unit = math.prod(shape[1:]) if by_row else 1
            units = np.concatenate(terms, axis=None).reshape(-1, len(terms), unit)
            made[path] = units.sum(axis=1).reshape(shape)
    return made


def _read_all(context: Context, cases: Mapping[str, Pair]) -> dict[str, Array]:
    """Of one buffer for all variables, in their order."""
    case = replace(next(iter(cases.values())), rows=None)
    paths = [
        info.path
        for info in context.infos.values()
        if info.role == "variable" and context.find_terms_of(case, info.path)
    ]
    ends = np.cumsum([math.prod(context.infos[path].shape) for path in paths])
    if len(paths) < 2:
        return {}
    whole = np.zeros(ends[-1])
    for path, end in zip(paths, ends, strict=True):
        # Those of a large model, of all replicas at once, would fill the memory.
        for replica, term in enumerate(context.find_terms_of(case, path)):
            places = np.arange(end - term.size, end) + replica * len(whole)
            np.add.at(whole, places // context.replicas, term.ravel())
    pieces = zip(paths, np.split(whole, ends[:-1]), strict=True)
    return {path: piece.reshape(context.infos[path].shape) for path, piece in pieces}
