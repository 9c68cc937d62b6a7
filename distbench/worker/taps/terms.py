"""The terms of a loss, as the graph of a traced step adds them up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Term = tuple[Any, Any]
"""A number of the graph, and how many times the loss counts it; or a list of numbers,
and how often it counts each of them."""

_MOST = 6
"""So many terms are told: each takes a trace of the step."""
_SUMS = ("Add", "AddV2", "AddN")
_OVER = ("Sum", "Mean")
_BY_ELEMENT = (*_SUMS, "Sub", "Neg", "Identity", "Mul", "RealDiv")


def find_terms(target: Any, most: int = _MOST) -> list[Term]:
    """What a number is the sum of, itself if it is none; constants are left out.

    Sums, differences and constant factors of numbers are followed. What is added up
    before it is one number, as the losses of examples are, stays one term. So does what
    would make more terms than are wanted: the outermost sums are taken apart first.
    """
    terms, is_open = _leave_constants([(target, 1.0)]), True
    while is_open:
        is_open, left, terms = False, terms, []
        while left:
            number, factor = left.pop(0)
            parts = _leave_constants(_open(number))
            if parts and len(terms) + len(parts) + len(left) <= most:
                terms += [(part, factor * times) for part, times in parts]
                is_open = True
            else:
                terms.append((number, factor))
    return terms


def pick_term(target: Any, number: int) -> Term:
    """The term of a number, by its place among those that are found.

    Raises:
        IndexError: There are fewer.
    """
    return find_terms(target)[number]


def _leave_constants(terms: Iterable[Term]) -> list[Term]:
    return [term for term in terms if tf.get_static_value(term[0]) is None]


def _open(target: Any) -> list[Term]:
    """The numbers that one op makes another of; empty where it is no sum of them."""
    op = getattr(target, "op", None)
    if op is None or target.shape.rank != 0:
        return []
    inputs = list(op.inputs)
    if op.type in _OVER:
        return _open_list(op.type, inputs[0])
    if not _are_numbers(inputs):
        return []
    if op.type in _SUMS:
        return [(t, 1.0) for t in inputs]
    if op.type == "Identity":
        return [(inputs[0], 1.0)]
    if op.type == "Neg":
        return [(inputs[0], -1.0)]
    if op.type == "Sub":
        return [(inputs[0], 1.0), (inputs[1], -1.0)]
    return _open_product(op.type, inputs)


def _open_product(kind: str, inputs: Sequence[Any]) -> list[Term]:
    """The same of what is multiplied or divided by a constant."""
    values = [tf.get_static_value(t) for t in inputs]
    if kind == "RealDiv" and values[1] is not None and np.all(values[1]):
        return [(inputs[0], 1 / np.asarray(values[1], np.float64))]
    if kind == "Mul":
        for place, value in enumerate(values):
            if value is not None:
                return [(inputs[1 - place], np.asarray(value, np.float64))]
    return []


def _open_list(kind: str, values: Any) -> list[Term]:
    """The same of the sum or mean of a list of numbers; Keras 3 adds up losses so."""
    if _are_numbers([values]):
        return [(values, 1.0)]
    count = values.shape.num_elements()
    if values.shape.rank != 1 or not count or not _is_listed(values):
        return []
    times = np.ones(count) if kind == "Sum" else np.full(count, 1 / count)
    return list(_take_apart(values, times))


def _is_listed(values: Any) -> bool:
    """Whether something is made of a list of numbers, element by element.

    The losses of a few examples have as many elements, and are one term.
    """
    op = values.op
    if op.type == "Pack":
        return _are_numbers(op.inputs)
    return op.type in _BY_ELEMENT and any(map(_is_listed, op.inputs))


def _take_apart(values: Any, factors: npt.NDArray[Any]) -> Iterator[Term]:
    """The numbers of a list, each of which counts so often.

    What is no sum of numbers stays an element of a list.
    """
    op = values.op
    inputs = list(op.inputs)
    if _are_numbers([values]):
        yield values, float(np.sum(factors))
    elif not _is_listed(values):
        yield values, factors
    elif op.type == "Pack":
        yield from zip(inputs, map(float, factors), strict=True)
    elif op.type in (*_SUMS, "Sub", "Neg", "Identity"):
        for place, part in enumerate(inputs):
            is_less = op.type == "Neg" or (op.type == "Sub" and place == 1)
            yield from _take_apart(part, -factors if is_less else factors)
    elif product := _open_product(op.type, inputs):
        [(part, factor)] = product
        yield from _take_apart(part, factors * factor)
    else:
        for place, factor in enumerate(factors):
            yield values, factor * np.eye(len(factors))[place]


def _are_numbers(tensors: Iterable[Any]) -> bool:
    return all(tensor.shape.rank == 0 for tensor in tensors)
