"""Traces as `distbench.record` writes them, of a regression that NumPy trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from distbench.trace import INITIAL, SparseRows, Trace, TraceKey, Value, VariableInfo
from distbench.trace.files import write_trace
from distbench.trace.folder import name_part

EXAMPLES = 8
Reduce = Callable[[list[np.ndarray], int], np.ndarray]


def add(gradients: list[np.ndarray], replica: int) -> np.ndarray:
    return np.sum(gradients, axis=0, dtype=np.float32)


def average(gradients: list[np.ndarray], replica: int) -> np.ndarray:
    return add(gradients, replica) / np.float32(len(gradients))


def keep_own(gradients: list[np.ndarray], replica: int) -> np.ndarray:
    return gradients[replica]


def train(
    replicas: int,
    *,
    reduce: Reduce = add,
    rate: float = 1e-4,
    steps: int = 3,
    loss_scale: float = 1.0,
    layer: str = "dense",
    name: str = "run",
    sparse: bool = False,
) -> Trace:
    """Momentum on a linear model with large weights and small steps.

    Args:
        replicas: Number of replicas, each with an equal share of the examples.
        reduce: What becomes of the replicas' gradients, on each of them.
        rate: Learning rate.
        steps: How many.
        loss_scale: Factor of every replica's loss.
        layer: What the layer is called.
        name: Of the trace.
        sparse: Whether the gradient is given as rows, the first one twice.
    """
    kernel = f"{layer}/kernel"
    infos = (
        VariableInfo(path=kernel, role="variable", shape=(3,), dtype="float32"),
        VariableInfo(
            path=f"SGD/{kernel}/m", role="slot", shape=(3,), dtype="float32", of=kernel
        ),
        VariableInfo(
            path="seen",
            role="slot",
            shape=(),
            dtype="float32",
            synchronised=False,
            adds_up=True,
        ),
        VariableInfo(path="SGD/iter", role="iterations", shape=(), dtype="int64"),
    )
    weights = [np.array([3, -2, 1], np.float32) for _ in range(replicas)]
    slots = [np.zeros(3, np.float32) for _ in range(replicas)]
    seen = [np.float32(0)] * replicas
    values: dict[TraceKey, Value] = {}

    def put(step: int, phase, variable: str, replica: int, value: Value) -> None:
        key = TraceKey(step=step, phase=phase, variable=variable, replica=replica)
        values[key] = value

    def put_state(step: int) -> None:
        for replica in range(replicas):
            put(step, "variable", kernel, replica, weights[replica].copy())
            put(step, "slot", f"SGD/{kernel}/m", replica, slots[replica].copy())
            put(step, "slot", "seen", replica, np.asarray(seen[replica]))
            put(step, "iterations", "SGD/iter", replica, np.asarray(step + 1))

    put_state(INITIAL)
    size = EXAMPLES // replicas
    for step in range(steps):
        rng = np.random.default_rng(step)
        inputs = rng.normal(size=(EXAMPLES, 3)).astype(np.float32)
        targets = rng.normal(size=EXAMPLES).astype(np.float32)
        local = []
        for replica in range(replicas):
            part = slice(replica * size, (replica + 1) * size)
            error = inputs[part] @ weights[replica] - targets[part]
            factor = np.float32(2 * loss_scale / EXAMPLES)
            gradient = factor * inputs[part].T @ error
            local.append(gradient)
            put(step, "loss", "", replica, np.sum(error**2) * factor / np.float32(2))
            put(
                step,
                "local_gradient",
                kernel,
                replica,
                make_rows(gradient) if sparse else gradient,
            )
            seen[replica] = seen[replica] + np.float32(size)
        for replica in range(replicas):
            reduced = reduce(local, replica)
            put(step, "reduced_gradient", kernel, replica, reduced)
            slots[replica] = np.float32(0.9) * slots[replica] + reduced
            weights[replica] = weights[replica] - np.float32(rate) * slots[replica]
        put_state(step)
    return Trace(
        name=name, replicas=replicas, shards=(), variables=infos, values=values
    )


def make_rows(gradient: np.ndarray) -> SparseRows:
    half = gradient[:1] / 2
    return SparseRows(
        indices=np.array([0, 0, 1, 2]),
        values=np.concatenate([half, half, gradient[1:]]),
        shape=gradient.shape,
    )


def write_parts(trace: Trace, folder: Path, tasks: int = 1) -> Path:
    """Write a trace as as many processes would that each hold as many replicas."""
    folder.mkdir(parents=True, exist_ok=True)
    each = trace.replicas // tasks
    for task in range(tasks):
        held = range(task * each, (task + 1) * each)
        for step in range(trace.steps):
            values = {
                key: value
                for key, value in trace.values.items()
                if key.replica in held and max(key.step, 0) == step
            }
            part = Trace(
                name=f"worker-{task}",
                replicas=trace.replicas,
                shards=(),
                variables=trace.variables,
                values=values,
            )
            write_trace(part, folder, name_part(f"worker-{task}", step))
    return folder
