"""Losses and gradients of a drawn problem in NumPy, for whoever plans what to do.

They tell how large a gradient is, so that a rate does not blow the training up and a
threshold bites. What a task computes is TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distbench.samples.drawn.problem import Array, Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slices:
    """A table's gradient as its lookups give it: row numbers and rows."""

    rows: Array
    values: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradients:
    """Gradients of a share of the loss.

    Attributes:
        dense: By variable.
        slices: Of the tables, by variable.
    """

    dense: dict[str, Array]
    slices: dict[str, Slices]


def weigh_examples(problem: Problem, batch: Mapping[str, Array]) -> Array:
    """How much each example counts in the mean that is the loss."""
    if problem.normaliser == "weights":
        return np.asarray(batch["weights"], np.float64)
    if problem.normaliser == "words":
        words = batch[f"{problem.tables[0].name}/words"]
        return np.asarray(np.count_nonzero(words, axis=1), np.float64)
    return np.ones(problem.examples)


def compute_gradients(
    problem: Problem,
    values: Mapping[str, Array],
    batch: Mapping[str, Array],
    part: slice,
    share: float,
) -> Gradients:
    """Gradients of a shard's share of the global loss.

    Args:
        problem: Model and loss.
        values: Of the variables.
        batch: The global batch.
        part: The shard's examples.
        share: The shard's share of the penalty.
    """
    weights = weigh_examples(problem, batch)
    weights = (weights / np.sum(weights))[part]
    cut = {name: np.asarray(array)[part] for name, array in batch.items()}
    state = {name: np.asarray(array, np.float64) for name, array in values.items()}
    found = _backpropagate(problem, state, cut, weights)
    for name, (first, second) in problem.penalties.items():
        pull = first * np.sign(state[name]) + 2 * second * state[name]
        found.dense[name] = found.dense[name] + share * pull
    return found


def _backpropagate(
    problem: Problem, state: dict[str, Array], batch: dict[str, Array], weights: Array
) -> Gradients:
    means = {
        table.name: np.mean(
            state[f"{table.name}/table"][batch[f"{table.name}/words"]], axis=1
        )
        for table in problem.tables
    }
    before = np.zeros((len(weights), problem.hidden))
    for table in problem.tables:
        kernel = state.get(f"{table.name}/kernel")
        mean = means[table.name]
        before = before + (mean if kernel is None else mean @ kernel)
    if problem.features:
        before = before + batch["features"].astype(np.float64) @ state["inputs/kernel"]
    before = before + state.get("hidden/bias", 0.0)
    active, slope = _activate(problem.activation, before)
    gain = state.get("hidden/gain", np.ones(()))
    scaled = active * gain
    inner = scaled @ state["middle/kernel"] if problem.middle else scaled
    second, second_slope = inner, np.ones_like(inner)
    if problem.middle:
        second, second_slope = _activate(problem.activation, inner)
    outputs = second @ state["head/kernel"] if problem.head else second
    outputs = outputs + state.get("head/bias", 0.0)

    dense: dict[str, Array] = {}
    back = weights[:, np.newaxis] * _differentiate(problem, outputs, batch)
    if problem.offset:
        dense["head/bias"] = back.sum(axis=0)
    if problem.head:
        dense["head/kernel"] = second.T @ back
        back = back @ state["head/kernel"].T
    if problem.middle:
        back = back * second_slope
        dense["middle/kernel"] = scaled.T @ back
        back = back @ state["middle/kernel"].T
    if problem.gain != "none":
        each = (back * active).sum(axis=0)
        dense["hidden/gain"] = each if gain.ndim else each.sum()
    back = back * gain * slope
    if problem.bias:
        dense["hidden/bias"] = back.sum(axis=0)
    if problem.features:
        dense["inputs/kernel"] = batch["features"].astype(np.float64).T @ back
    return _finish_tables(problem, state, batch, means, back, dense)


def _finish_tables(
    problem: Problem,
    state: dict[str, Array],
    batch: dict[str, Array],
    means: dict[str, Array],
    back: Array,
    dense: dict[str, Array],
) -> Gradients:
    slices: dict[str, Slices] = {}
    for table in problem.tables:
        pulled = back
        if table.projected:
            dense[f"{table.name}/kernel"] = means[table.name].T @ back
            pulled = back @ state[f"{table.name}/kernel"].T
        rows = batch[f"{table.name}/words"].ravel()
        values = np.repeat(pulled / table.words, table.words, axis=0)
        name = f"{table.name}/table"
        dense[name] = np.zeros((table.rows, table.width))
        np.add.at(dense[name], rows, values)
        if name in problem.list_sparse():
            slices[name] = Slices(rows=rows, values=values)
    return Gradients(
        dense={name: np.asarray(dense[name]) for name in problem.list_shapes()},
        slices=slices,
    )


def _activate(name: str, x: Array) -> tuple[Array, Array]:
    """An activation and its slope."""
    if name == "tanh":
        y = np.tanh(x)
        return y, 1 - y * y
    logistic = 1 / (1 + np.exp(-x))
    if name == "sigmoid":
        return logistic, logistic * (1 - logistic)
    if name == "softplus":
        return np.logaddexp(0, x), logistic
    if name == "relu":
        return np.maximum(x, 0), (x > 0).astype(np.float64)
    if name == "elu":
        low = np.exp(np.minimum(x, 0))
        return np.where(x > 0, x, low - 1), np.where(x > 0, 1.0, low)
    return x, np.ones_like(x)


def _differentiate(problem: Problem, outputs: Array, batch: dict[str, Array]) -> Array:
    """Derivative of each example's loss with respect to its outputs."""
    if problem.loss == "cross entropy":
        shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        chances = shifted / shifted.sum(axis=1, keepdims=True)
        return np.asarray(chances - np.eye(problem.outputs)[batch["labels"]])
    error = outputs - batch["targets"].astype(np.float64)
    if problem.loss == "squares":
        return 2 * error
    limit = problem.delta * problem.unit_out
    return np.asarray(np.clip(error, -limit, limit))
