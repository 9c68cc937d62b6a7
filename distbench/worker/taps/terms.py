"""The terms of a loss, as the graph of a traced step adds them up."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

Term = tuple[Any, float]
"""A number of the graph, and how many times the loss counts it."""

_SUMS = ("Add", "AddV2", "AddN")


def list_terms(target: Any, factor: float = 1.0) -> list[Term]:
    """What a number is the sum of, itself if it is none; constants are left out.

    Sums, differences and constant factors of numbers are followed. What is added up
    before it is one number, as the losses of examples are, stays one term.
    """
    if tf.get_static_value(target) is not None:
        return []
    found = [term for part in _open(target) for term in list_terms(part[0], part[1])]
    return [(t, factor * f) for t, f in found] or [(target, factor)]


def _open(target: Any) -> list[Term]:
    """The numbers that one op makes another of; empty where it is no sum of them."""
    op = getattr(target, "op", None)
    if op is None or any(t.shape.rank != 0 for t in (target, *op.inputs)):
        return []
    inputs = list(op.inputs)
    if op.type in _SUMS:
        return [(t, 1.0) for t in inputs]
    if op.type == "Identity":
        return [(inputs[0], 1.0)]
    if op.type == "Neg":
        return [(inputs[0], -1.0)]
    if op.type == "Sub":
        return [(inputs[0], 1.0), (inputs[1], -1.0)]
    values = [tf.get_static_value(t) for t in inputs]
    if op.type == "RealDiv" and values[1]:
        return [(inputs[0], 1 / float(values[1]))]
    if op.type == "Mul":
        for place, value in enumerate(values):
            if value is not None:
                return [(inputs[1 - place], float(value))]
    return []
