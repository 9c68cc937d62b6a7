"""The terms of a loss, as the graph of a traced step adds them up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

Term = tuple[Any, float]
"""A number of the graph, and how many times the loss counts it."""

_SUMS = ("Add", "AddV2", "AddN")
_OVER = ("Sum", "Mean")


def find_terms(target: Any) -> Iterator[Term]:
    """What a number is the sum of, itself if it is none; constants are left out.

    Sums, differences and constant factors of numbers are followed. What is added up
    before it is one number, as the losses of examples are, stays one term. There may be
    as many as a loop in Python adds up, and each as often as it is counted.
    """
    left = _leave_constants([(target, 1.0)])
    while left:
        number, factor = left.pop()
        parts = _leave_constants(_open(number))
        left += [(part, factor * times) for part, times in reversed(parts)]
        if not parts:
            yield number, factor


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
    if kind == "RealDiv" and values[1]:
        return [(inputs[0], 1 / float(values[1]))]
    if kind == "Mul":
        for place, value in enumerate(values):
            if value is not None:
                return [(inputs[1 - place], float(value))]
    return []


def _open_list(kind: str, values: Any) -> list[Term]:
    """The same of the sum or mean of a list of numbers; Keras 3 adds up losses so."""
    if _are_numbers([values]):
        return [(values, 1.0)]
    parts = list(values.op.inputs) if values.op.type == "Pack" else []
    if not _are_numbers(parts):
        return []
    return [(part, 1.0 if kind == "Sum" else 1 / len(parts)) for part in parts]


def _are_numbers(tensors: Iterable[Any]) -> bool:
    return all(tensor.shape.rank == 0 for tensor in tensors)
