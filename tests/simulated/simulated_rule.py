"""Optimizers in NumPy: how gradients become a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gradient_values import Gradients, clip_norm, to_array

State = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An optimizer: how gradients become a step.

    Attributes:
        decay: Share of the variable before the step that is taken off, over the rate.
        inner: Share of it that is added to a gradient, or under `lamb` to a momentum.
        shrink: Share of what the step left that is taken off after it.
        constraint: What becomes of a variable after its step, by its path.
        statistic: What `running` keeps an average of, made of all gradients.
        counts: Whether it looks at the counter of steps.
        weights: What it weighs, and its old value before it, by the step.
    """

    name: str = "sgd"
    rate: float = 0.125
    decay: float = 0.0
    inner: float = 0.0
    shrink: float = 0.0
    beta: float = 0.5
    clip: float | None = None
    statistic: Callable[[Gradients], Any] | None = None
    counts: bool = False
    weights: Callable[[int], tuple[float, float]] = lambda step: (0.75, 0.25)
    constraint: Callable[[str, np.ndarray], np.ndarray] = lambda path, value: value

    @property
    def slots(self) -> tuple[str, ...]:
        return {
            "sgd": (),
            "sign": (),
            "momentum": ("momentum",),
            "adam": ("m", "v"),
            "adagrad": ("sum",),
            "ema": ("momentum", "average"),
            "lars": ("momentum",),
            "lamb": ("momentum",),
        }[self.name]

    def told(self, replicas: int) -> Rule:
        """The rule where it is told of so many replicas: itself, if it does not ask."""
        del replicas
        return self

    def transform(self, gradients: Gradients) -> Gradients:
        if self.clip is None:
            return dict(gradients)
        return {k: clip_norm(v, self.clip) for k, v in gradients.items()}

    def update(self, state: State, gradients: Gradients) -> State:
        new = dict(state)
        for path, value in gradients.items():
            theta = state[path]
            t = theta.dtype.type
            g = to_array(value).astype(theta.dtype)
            step = self._take_slots(new, state, path, g)
            kept = theta * t(1 - self.rate * self.decay) if self.decay else theta
            new[path] = (kept - t(self.rate) * step).astype(theta.dtype)
            if self.shrink:
                new[path] = new[path] * t(1 - self.shrink)
            new[path] = self.constraint(path, new[path])
            if self.name == "ema":
                old = state[f"average/{path}"]
                new[f"average/{path}"] = t(0.75) * old + t(0.25) * new[path]
        if self.statistic is not None:
            taken, step = self.statistic(gradients), int(state["iterations"])
            new["running"] = self.average(state["running"], taken, step)
        new["iterations"] = state.get("iterations", np.int64(0)) + 1
        return new

    def _take_slots(
        self, new: State, state: State, path: str, g: np.ndarray
    ) -> np.ndarray:
        """Change the slots of a variable; returns its step."""
        theta = state[path]
        t = theta.dtype.type
        if self.inner and self.name != "lamb":
            g = g + t(self.inner) * theta
        if self.name == "lars":
            g = trust(theta, g)
        if self.name in ("momentum", "ema", "lars", "lamb"):
            new[f"momentum/{path}"] = t(self.beta) * state[f"momentum/{path}"] + g
            step = new[f"momentum/{path}"]
            if self.name == "lamb":
                step = trust(theta, step + t(self.inner) * theta)
        elif self.name == "adam":
            m, v = state[f"m/{path}"], state[f"v/{path}"]
            m = t(0.75) * m + t(0.25) * g
            v = t(0.9) * v + t(0.1) * g * g
            new[f"m/{path}"], new[f"v/{path}"] = m, v
            step = m / (np.sqrt(v) + t(1e-3))
        elif self.name == "adagrad":
            new[f"sum/{path}"] = state[f"sum/{path}"] + g * g
            step = g / (np.sqrt(new[f"sum/{path}"]) + t(1e-3))
        elif self.name == "sign":
            step = np.sign(g)
        else:
            step = g
        return step

    def average(self, old: np.ndarray, taken: Any, step: int = 0) -> np.ndarray:
        """What `running` becomes."""
        keep, take = self.weights(step)
        return (keep * old + take * np.asarray(taken)).astype(old.dtype)


def trust(theta: np.ndarray, step: np.ndarray) -> np.ndarray:
    """A step as long as the variable."""
    ratio = np.linalg.norm(theta) / (np.linalg.norm(step) + 1e-6)
    return (step * theta.dtype.type(ratio)).astype(theta.dtype)
