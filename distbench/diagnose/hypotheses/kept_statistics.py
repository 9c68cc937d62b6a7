"""What a slot may keep of gradients beside their sums: norms, squares, products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.diagnose.clues.context import Context
from distbench.trace import Value
from distbench.trace.numbers import (
    Array,
    densify,
    measure_norm,
    measure_size,
    take_numbers,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistic:
    """A number, or an array of them, made of some variables' gradients.

    Attributes:
        words: What it is called.
        measure: Makes it of their gradients.
        of: The variable whose gradient alone it takes; empty for those that a slot
            names, or all.
        power: By which power of a factor of the gradients it grows.
    """

    words: str
    measure: Callable[[Sequence[Value]], Array]
    of: str = ""
    power: int = 1


def list_statistics(context: Context) -> Iterator[Statistic]:
    """All that is known, what takes the gradients that a slot names first."""
    yield from _list_any()
    yield from _list_of_one(context)
    yield from _list_products(context)


def _list_any() -> Iterator[Statistic]:
    yield Statistic(words="the norm", measure=_measure_norm)
    yield Statistic(
        words="the norm",
        measure=lambda found: _measure_norm([take_numbers(v) for v in found]),
    )
    yield Statistic(words="the squared norm", measure=_square_norm, power=2)
    yield Statistic(
        words="the largest element",
        measure=lambda found: np.asarray(max(measure_size(densify(v)) for v in found)),
    )
    yield Statistic(
        words="the mean absolute value",
        measure=lambda found: np.asarray(
            np.mean(np.abs(np.concatenate([densify(v).ravel() for v in found])))
        ),
    )
    yield Statistic(
        words="the absolute value", measure=lambda found: np.abs(densify(found[0]))
    )
    yield Statistic(
        words="the square", measure=lambda found: densify(found[0]) ** 2, power=2
    )


def _list_of_one(context: Context) -> Iterator[Statistic]:
    """Norms of one variable's gradient, where a slot is a number that names none.

    Rules that move at one rate for each layer keep them.
    """
    paths = {case.key.variable for case in context.cases if case.expected.size == 1}
    if not any(context.infos[path].of == "" for path in paths):
        return
    for info in context.infos.values():
        if info.role == "variable" and info.trainable:
            words = f"for '{info.path}'"
            yield Statistic(
                words=f"the squared norm {words}",
                measure=_square_norm,
                of=info.path,
                power=2,
            )
            yield Statistic(
                words=f"the norm {words}", measure=_measure_norm, of=info.path
            )


def _list_products(context: Context) -> Iterator[Statistic]:
    """Squares of a matrix along its rows or columns, and the products of these.

    Rules that factor their second moments, or precondition by them, keep such arrays.
    They need not bear the name of their variable, and may have the shape of another, so
    their own shape tells of which they may be made. A mean is a sum but for a number,
    which is fitted.
    """
    shapes = {case.expected.shape for case in context.cases}
    for info in context.infos.values():
        if info.role != "variable" or len(info.shape) != 2:
            continue
        rows, columns = info.shape
        for shape, words, measure in (
            ((rows,), "the squares of each row", _square_rows),
            ((columns,), "the squares of each column", _square_columns),
            ((rows, rows), "the products of the rows", _multiply_rows),
            ((columns, columns), "the products of the columns", _multiply_columns),
        ):
            if shape in shapes:
                yield Statistic(words=words, measure=measure, of=info.path, power=2)


def _square_rows(found: Sequence[Value]) -> Array:
    return np.asarray(np.sum(densify(found[0]) ** 2, axis=1))


def _square_columns(found: Sequence[Value]) -> Array:
    return np.asarray(np.sum(densify(found[0]) ** 2, axis=0))


def _multiply_rows(found: Sequence[Value]) -> Array:
    gradient = densify(found[0])
    return np.asarray(gradient @ gradient.T)


def _multiply_columns(found: Sequence[Value]) -> Array:
    gradient = densify(found[0])
    return np.asarray(gradient.T @ gradient)


def _square_norm(found: Sequence[Value]) -> Array:
    return np.asarray(_measure_norm(found) ** 2)


def _measure_norm(found: Sequence[Value]) -> Array:
    return np.asarray(np.sqrt(sum(measure_norm(densify(v)) ** 2 for v in found)))
