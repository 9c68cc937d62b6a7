"""A small model in NumPy, and what one device makes of its batches.

The model is y = x W + b + E[i] + E[j] with half the squared error, so it has a dense
kernel, a bias, and an embedding with sparse gradients whose rows repeat inside a
replica and across replicas. Everything is computed in the run's dtype, and sums in
another order differ by rounding as they do on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gradient_values import Gradients, to_array
from simulated_rule import Rule, State

from distbench.evidence import Tier
from distbench.split import split_unevenly
from distbench.trace import SparseRows, VariableInfo

KERNEL, BIAS, TABLE, HEAD = "dense/kernel", "dense/bias", "embedding/table", "head/gain"
TRAINED = (KERNEL, BIAS, TABLE, HEAD)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is run.

    Attributes:
        alone: What one device does to its gradients where the replicas' are summed.
        draws: The lines that draw random numbers; None if nobody looked.
    """

    replicas: int = 2
    shards: tuple[int, ...] = ()
    examples: int = 16
    steps: int = 2
    dtype: str = "float32"
    tier: Tier = "bounded"
    seed: int = 0
    rule: Rule = field(default_factory=Rule)
    sparse: bool = True
    penalty: float = 0.0
    shards_known: bool = True
    loss_reduction: Any = "sum"
    central: bool = False
    width: int = 6
    summed_first: bool = False
    weighed: bool = False
    alone: Callable[[Gradients], Gradients] = lambda gradients: gradients
    draws: tuple[str, ...] | None = None


class Model:
    """The model of a run, its data, and its steps on one device."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        shards = setup.shards or split_unevenly(setup.examples, setup.replicas)
        self.shards = shards
        self.examples = sum(shards)
        rng = np.random.default_rng(setup.seed)
        self.rng = rng
        exact = setup.tier == "exact"
        w, d = setup.width, 5

        def draw(*shape: int) -> np.ndarray:
            if exact:
                return (rng.integers(-4, 5, shape) / 4).astype(setup.dtype)
            return rng.normal(size=shape).astype(setup.dtype)

        self.initial: State = {
            KERNEL: draw(d, w),
            BIAS: draw(w),
            TABLE: draw(7, w),
            HEAD: draw(w),
        }
        for slot in setup.rule.slots:
            for path in TRAINED:
                value = np.zeros_like(self.initial[path])
                if slot == "average":
                    value = self.initial[path].copy()
                self.initial[f"{slot}/{path}"] = value
        if setup.rule.statistic is not None:
            kept = setup.rule.statistic({p: self.initial[p] for p in TRAINED})
            self.initial["running"] = np.ones(np.shape(kept), setup.dtype)
        self.initial["iterations"] = np.array(0, np.int64)
        self.batches = [
            (
                draw(self.examples, d),
                rng.integers(0, 5, (self.examples, 2)),
                draw(self.examples, w),
            )
            for _ in range(setup.steps)
        ]
        self.weights = np.ones(self.examples)
        if setup.weighed:
            drawn = np.random.default_rng(setup.seed).uniform(0.1, 3, self.examples)
            self.weights = drawn * self.examples / drawn.sum()
        self.infos = tuple(self._list_infos())

    def _list_infos(self) -> list[VariableInfo]:
        infos = []
        for path, value in self.initial.items():
            role: Any = "variable" if path in TRAINED else "slot"
            infos.append(
                VariableInfo(
                    path=path,
                    role="iterations" if path == "iterations" else role,
                    shape=value.shape,
                    dtype=value.dtype.name,
                    of=path.split("/", 1)[1] if role == "slot" and "/" in path else "",
                )
            )
        return infos

    def compute(
        self, state: State, batch: Any, examples: Sequence[int], part: float
    ) -> tuple[np.ndarray, Gradients]:
        """Σ w ℓ / G + part · R and its gradient, over some examples in their order."""
        x, ids, y = (a[np.asarray(examples, int)] for a in batch)
        t = np.dtype(self.setup.dtype).type
        table = state[TABLE]
        base = x @ state[KERNEL] + state[BIAS] + table[ids[:, 0]] + table[ids[:, 1]]
        error = (base + state[HEAD] * x[:, :1] - y).astype(self.setup.dtype)
        g = t(self.examples)
        weights = self.weights[np.asarray(examples, int), None].astype(t)
        scaled = weights * error / g
        losses = weights * error * error
        loss = (t(0.5) * np.sum(losses, dtype=self.setup.dtype) / g).reshape(())
        gradients: Gradients = {
            KERNEL: x.T @ scaled,
            BIAS: scaled.sum(0),
            HEAD: (scaled * x[:, :1]).sum(0),
        }
        if not len(x):
            gradients = {k: np.zeros_like(state[k]) for k in (KERNEL, BIAS, HEAD)}
        rows = SparseRows(
            indices=ids.ravel().astype(np.int64),
            values=np.repeat(scaled, 2, axis=0),
            shape=table.shape,
        )
        gradients[TABLE] = rows if self.setup.sparse else to_array(rows).astype(t)
        lam = self.setup.penalty
        if lam:
            weights = state[KERNEL]
            loss = loss + t(part * lam / 2) * np.sum(weights * weights)
            gradients[KERNEL] = gradients[KERNEL] + t(part * lam) * weights
        return loss.astype(self.setup.dtype), gradients

    def step_one(
        self, state: State, batch: Any, order: Sequence[int]
    ) -> tuple[dict[str, Any], State]:
        loss, local = self.compute(state, batch, order, 1.0)
        reduced = self.setup.alone(local)
        applied = self.setup.rule.transform(reduced)
        new = self.setup.rule.update(state, applied)
        taps = {
            "loss": {"": loss},
            "local_gradient": local,
            "reduced_gradient": reduced,
            "applied_gradient": applied,
        }
        return taps, new

    def start_of(self, step: int, state: State) -> State:
        if self.setup.tier == "exact" and step:
            return {**state, **{path: self.initial[path] for path in TRAINED}}
        return state

    def perturb(self, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f":
            return array
        signs = self.rng.choice([-0.5, 0.5], size=array.shape)
        wide = array.astype(np.float64) * (1 + signs * np.finfo(array.dtype).eps)
        return wide.astype(array.dtype)
