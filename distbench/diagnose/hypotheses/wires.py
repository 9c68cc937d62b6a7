"""Functions of single elements that replicas send in place of their gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from distbench.diagnose.clues.addends import ADDED, list_sources
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.trace.numbers import Array

Function = Callable[[Array], Array]


def explain_by_wire(context: Context) -> Iterator[Hypothesis]:
    """Every replica sends a function of its elements; it may be undone after the sum.

    Compression that is told by its inverse: h⁻¹(Σ h(g_r)) or Σ h(g_r), or the same with
    the mean of h(g_r).
    """
    if context.phase not in ADDED or context.replicas == 1:
        return
    sources, times = list_sources(context), context.times_share
    for (words, send, receive), (undone, mean) in itertools.product(
        _WIRES, ((True, False), (True, True), (False, False), (False, True))
    ):
        predicted = {}
        for source in sources:
            sent = np.asarray(sum(send(times * term) for term in source.terms))
            sent = sent / len(source.terms) if mean else sent
            predicted[source.number] = receive(sent) if undone else sent
        how = "averaged" if mean else "added up"
        yield Hypothesis(
            code=NONLINEAR,
            predicted=predicted,
            detail=f"every replica sends {words} of its gradient; these are {how}"
            f"{', and that is undone' if undone else ''}",
        )


def _raise(power: float) -> Function:
    return lambda x: np.sign(x) * np.abs(x) ** power


_WIRES: tuple[tuple[str, Function, Function], ...] = (
    ("the square root", _raise(1 / 2), _raise(2)),
    ("the cube root", _raise(1 / 3), _raise(3)),
    ("the square", _raise(2), _raise(1 / 2)),
    ("the cube", _raise(3), _raise(1 / 3)),
    (
        "the logarithm of 1 plus the size",
        lambda x: np.sign(x) * np.log1p(np.abs(x)),
        lambda x: np.sign(x) * np.expm1(np.abs(x)),
    ),
    ("the tangens hyperbolicus", np.tanh, lambda x: np.arctanh(np.clip(x, -1, 1))),
)
"""What is sent, and how it is undone; each keeps the sign."""
