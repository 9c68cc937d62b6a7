"""Second moments about a mean, of the replicas' own gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.slot_facts import keeps_gradients
from distbench.diagnose.hypotheses.update import fit_feature
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array, densify, measure_norm

Way = tuple[str, Callable[[Array, Array, Array], Array], bool]
"""Words, what is too much given Σ g_r², S = Σ g_r and a mean m, and if m matters."""


def explain_by_own_squares(context: Context) -> Iterator[Hypothesis]:
    """A state takes the squares of own gradients in place of the square of their sum.

    Whatever else it takes: with (S - m)² in it, that of another square is off in the
    same place. Where m falls out of the difference, nobody has to know it; else it is a
    state of the same shape, as the first moment is under AdaBelief. How much of it a
    step takes is fitted, one number for all variables.
    """
    if context.replicas == 1 or not keeps_gradients(context):
        return
    for words, measure, takes_mean in _list_ways(context.replicas):

        def find(
            case: Pair,
            measure: Callable[[Array, Array, Array], Array] = measure,
            takes_mean: bool = takes_mean,
        ) -> Array | None:
            return _find_nearest(context, case, measure, takes_mean)

        fitted = fit_feature(context, find)
        if fitted is None or fitted[0] <= 0:
            continue
        yield Hypothesis(
            code="slot-from-local-gradient",
            predicted=fitted[1],
            detail="where it takes the square of the sum of the gradients, about a "
            f"mean or not, it has the replicas' squares of {words}",
        )


def _list_ways(n: int) -> Iterator[Way]:
    """Squares that a replica may take in place of (S - m)².

    (1/N) Σ (N g_r - m)² is N Σ g_r² - 2 m S + m², and Σ (g_r - m)² is
    Σ g_r² - 2 m S + N m².
    """
    yield (
        "N times their own gradients, averaged",
        lambda squares, total, _: n * squares - total**2,
        False,
    )
    yield (
        "their own gradients, added up",
        lambda squares, total, _: squares - total**2,
        False,
    )
    yield (
        "their own gradients' distances from that mean, added up",
        lambda squares, total, m: squares - total**2 + (n - 1) * m**2,
        True,
    )
    yield (
        "their own gradients' distances from that mean, averaged",
        lambda squares, total, m: squares / n - total**2 + 2 * (1 - 1 / n) * m * total,
        True,
    )


def _find_nearest(
    context: Context,
    case: Pair,
    measure: Callable[[Array, Array, Array], Array],
    takes_mean: bool,
) -> Array | None:
    """What is too much of own squares, of the variable that a state is likest of.

    A state that a program keeps by hand need not bear the name of its variable.
    """
    error = case.observed - case.expected
    best, nearest = 0.0, None
    for info in context.infos.values():
        terms = context.find_terms_of(case, info.path)
        if not terms or terms[0].shape != error.shape:
            continue
        squares, total = np.sum(np.square(terms), axis=0), np.sum(terms, axis=0)
        means = _list_means(context, case) if takes_mean else iter([total])
        for mean in means:
            more = measure(squares, total, mean)
            size = measure_norm(more) * measure_norm(error)
            along = float(np.sum(more * error)) / size if size else 0.0
            if along > best:
                best, nearest = along, np.asarray(more)
    return nearest


def _list_means(context: Context, case: Pair) -> Iterator[Array]:
    """Other state of the same shape, after the step and before it."""
    evidence = context.evidence
    for info in context.infos.values():
        if info.path == case.key.variable or info.shape != case.expected.shape:
            continue
        key = TraceKey(
            step=case.key.step, phase=info.role, variable=info.path, replica=WHOLE
        )
        for value in (
            evidence.reference.get(key),
            evidence.get_before(key.step, key.phase, key.variable),
        ):
            if value is not None:
                yield densify(value)
