"""How a drawn problem is trained: optimizers, and who sums the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distbench.samples.drawn.gradient import Gradients, compute_gradients
from distbench.samples.drawn.problem import (
    Array,
    Problem,
    Random,
    draw_penalties,
    draw_problem,
    measure_rms,
    round_number,
)

PATHS = ("optimizer", "own", "mean", "override", "hand", "two")
"""Who sums: the optimizer; the user; an averaging aggregator under N times the loss; a
subclass of the optimizer; the user, who also updates; two optimizers."""
OWN_RULES = ("OwnMomentum", "OwnSquares", "OwnMoments")
STOCK_RULES = (
    "SGD", "Adam", "Adagrad", "RMSprop", "Adadelta", "Adamax", "Nadam", "Ftrl",
)  # fmt: skip
CLIPS = ("clipnorm", "global_clipnorm", "clipvalue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An optimizer.

    Attributes:
        kind: One of `STOCK_RULES` or `OWN_RULES`.
        name: Its name in the program.
        rate: Learning rate.
        options: What else it is made with.
        schedule: Name of the schedule of its rate, `""` for none.
    """

    kind: str
    name: str
    rate: float
    options: Mapping[str, Any] = field(default_factory=dict)
    schedule: str = ""

    @property
    def own(self) -> bool:
        """Whether it is written out in the samples."""
        return self.kind in OWN_RULES

    @property
    def clip(self) -> str:
        """Which clip option it has, `""` for none."""
        return next((name for name in CLIPS if name in self.options), "")

    def describe(self) -> str:
        """The optimizer as it would be written."""
        options = [f"{name}={value:g}" for name, value in self.options.items()]
        if self.schedule:
            options.append(f"{self.schedule} schedule")
        return f"{self.kind}({', '.join([f'{self.rate:g}', *options])})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A correct train program as plain data.

    Attributes:
        problem: Model, data and loss.
        rules: The optimizers: one, two on the path `two`, by hand its rate alone.
        path: One of `PATHS`.
        parts: Micro-steps that a step accumulates; 1 for none.
        minimised: Whether the optimizer's `minimize` computes the gradients.
        joined: Whether the user's own sum is one call for all variables.
        order: Trained variables in the order in which they are handed over.
        split: How many of them the first of two optimizers gets.
        loss_reduction: What the program declares.
        statistic: Whether it keeps a moving mean of the features.
    """

    problem: Problem
    rules: tuple[Rule, ...]
    path: str
    parts: int
    minimised: bool
    joined: bool
    order: tuple[str, ...]
    split: int
    loss_reduction: str | None
    statistic: bool

    @property
    def rule(self) -> Rule:
        """The first optimizer."""
        return self.rules[0]

    def describe(self) -> str:
        """The program in a line."""
        how = {
            "optimizer": "summed by the optimizer",
            "own": "summed by the user",
            "mean": "averaged by an aggregator",
            "override": "summed in a subclass",
            "hand": "summed and applied by hand",
            "two": "two optimizers",
        }[self.path]
        steps = f", {self.parts} micro-steps" if self.parts > 1 else ""
        rules = " and ".join(rule.describe() for rule in self.rules)
        return (
            f"{self.problem.describe()}; {rules}; {how}{steps}"
            f"{', minimize' if self.minimised else ''}"
            f"{', a moving mean' if self.statistic else ''}"
        )


def draw_plan(rng: Random) -> Plan:
    """A correct program; drawn again until its numbers are fit to train on."""
    while True:
        problem = draw_problem(rng)
        gradients = _compute_whole(problem)
        if not _are_sound(problem, gradients.dense):
            continue
        if rng.random() < 0.3:
            penalties = draw_penalties(rng, problem, gradients.dense)
            problem = replace(problem, penalties=penalties)
            gradients = _compute_whole(problem)
        return _draw_training(rng, problem, gradients.dense)


def _compute_whole(problem: Problem) -> Gradients:
    return compute_gradients(
        problem, problem.draw_values(), problem.draw_batch(0), slice(None), 1.0
    )


def _are_sound(problem: Problem, gradients: Mapping[str, Array]) -> bool:
    """Whether every gradient is a number that matters beside the variable."""
    values = problem.draw_values()
    return all(
        np.all(np.isfinite(gradients[name]))
        and 1e-9 < measure_rms(gradients[name]) < 1e9
        and measure_rms(values[name]) > 0
        for name in values
    )


def _draw_training(
    rng: Random, problem: Problem, gradients: Mapping[str, Array]
) -> Plan:
    names = tuple(problem.list_shapes())
    path = str(rng.choice(PATHS, p=[0.3, 0.24, 0.1, 0.16, 0.1, 0.1]))
    if path == "two" and len(names) < 2:
        path = "own"
    parts = 1
    if path in ("optimizer", "own") and rng.random() < 0.25:
        parts = int(rng.choice([2, 3]))
    minimised = parts == 1 and path in ("optimizer", "mean", "override")
    minimised = bool(minimised and rng.random() < 0.2)
    order = tuple(str(name) for name in rng.permutation(names))
    split = int(rng.integers(1, len(names))) if len(names) > 1 else 1
    groups: Sequence[Sequence[str]] = (order,)
    if path == "two":
        groups = (order[:split], order[split:])
    declared = "mean" if path == "mean" else "sum"
    return Plan(
        problem=problem,
        rules=tuple(
            _draw_rule(rng, problem, gradients, group, path, number)
            for number, group in enumerate(groups)
        ),
        path=path,
        parts=parts,
        minimised=minimised,
        joined=bool(rng.random() < 0.5),
        order=order,
        split=split,
        loss_reduction=declared if rng.random() < 0.85 else None,
        statistic=bool(problem.features and rng.random() < 0.1),
    )


def _draw_rule(
    rng: Random,
    problem: Problem,
    gradients: Mapping[str, Array],
    names: Sequence[str],
    path: str,
    number: int,
) -> Rule:
    """An optimizer whose steps are small beside the variables."""
    relative = float(10 ** rng.uniform(-2.5, -0.8))
    values = problem.draw_values()
    sizes = {name: measure_rms(values[name]) for name in names}
    pulls = {name: measure_rms(gradients[name]) for name in names}
    along = round_number(relative * min(sizes[n] / pulls[n] for n in names))
    fixed = round_number(relative * min(sizes.values()))
    if path == "hand":
        return Rule(kind="SGD", name="", rate=along)
    kinds = STOCK_RULES if path == "two" else (*STOCK_RULES, *OWN_RULES)
    odds = np.array([3.0, 2.0] + [1.0] * 6 + [2.0] * (len(kinds) - 8))
    kind = str(rng.choice(kinds, p=odds / odds.sum()))
    options = _draw_options(rng, kind, min(pulls.values()))
    rate = along if kind in ("SGD", "OwnMomentum") else fixed
    if kind == "Adadelta":
        rate = 1.0
    if path != "two" and rng.random() < 0.2:
        options.update(_draw_clip(rng, {n: gradients[n] for n in names}))
    schedule = ""
    if kind in STOCK_RULES and kind != "Nadam" and rng.random() < 0.15:
        schedule = str(rng.choice(["exponential", "piecewise", "cosine"]))
    elif kind in STOCK_RULES and rng.random() < 0.15:
        options["decay"] = 0.1
    name = kind.removeprefix("Own") if path != "two" else ("First", "Second")[number]
    return Rule(kind=kind, name=name, rate=rate, options=options, schedule=schedule)


def _draw_options(rng: Random, kind: str, pull: float) -> dict[str, Any]:
    """Hyperparameters of a kind.

    Args:
        rng: Where they are drawn from.
        kind: Of the optimizer.
        pull: Size of the smallest gradient, which small numbers are set against.
    """
    start = round_number((pull * rng.uniform(0.2, 1.0)) ** 2)
    if kind == "SGD":
        return _draw_momentum(rng)
    if kind in ("Adam", "Adamax", "Nadam"):
        return _draw_moments(rng, kind, pull)
    if kind == "Adagrad":
        return {"initial_accumulator_value": start}
    if kind == "RMSprop":
        return _draw_centred(rng)
    if kind == "Adadelta":
        return {"rho": _draw_between(rng, 0.6, 0.95), "epsilon": start}
    if kind == "Ftrl":
        return {
            "initial_accumulator_value": start,
            "l1_regularization_strength": round_number(pull * rng.uniform(0, 0.1)),
            "l2_regularization_strength": round_number(pull * rng.uniform(0, 0.1)),
        }
    return _draw_own(rng, kind, pull, start)


def _draw_between(rng: Random, low: float, high: float) -> float:
    return round(float(rng.uniform(low, high)), 3)


def _draw_momentum(rng: Random) -> dict[str, Any]:
    momentum = _draw_between(rng, 0.5, 0.95)
    if rng.random() < 0.35:
        return {}
    if rng.random() < 0.4:
        return {"momentum": momentum, "nesterov": True}
    return {"momentum": momentum}


def _draw_moments(rng: Random, kind: str, pull: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "beta_1": _draw_between(rng, 0.6, 0.95),
        "beta_2": _draw_between(rng, 0.8, 0.999),
    }
    if rng.random() < 0.5:
        options["epsilon"] = round_number(pull * 10 ** rng.uniform(-4, -1))
    if kind == "Adam" and rng.random() < 0.3:
        options["amsgrad"] = True
    return options


def _draw_centred(rng: Random) -> dict[str, Any]:
    options: dict[str, Any] = {"rho": _draw_between(rng, 0.6, 0.95)}
    if rng.random() < 0.4:
        options["momentum"] = _draw_between(rng, 0.5, 0.9)
    if rng.random() < 0.4:
        options["centered"] = True
    return options


def _draw_own(rng: Random, kind: str, pull: float, start: float) -> dict[str, Any]:
    decays = rng.random() < 0.5
    options = {"decay": _draw_between(rng, 0.05, 0.3) if decays else 0.0}
    if kind == "OwnSquares":
        return {**options, "start": start}
    options["beta"] = _draw_between(rng, 0.5, 0.95)
    if kind == "OwnMoments":
        options["beta_2"] = _draw_between(rng, 0.7, 0.98)
        options["epsilon"] = round_number(pull)
    return options


def _draw_clip(rng: Random, gradients: Mapping[str, Array]) -> dict[str, Any]:
    """A clip option that bites, or nearly."""
    kind = str(rng.choice(CLIPS))
    norms = [float(np.linalg.norm(g)) for g in gradients.values()]
    if kind == "clipvalue":
        sizes = np.concatenate([np.abs(g).ravel() for g in gradients.values()])
        limit = float(np.quantile(sizes, rng.uniform(0.5, 0.95)))
    elif kind == "clipnorm":
        limit = float(np.median(norms))
    else:
        limit = float(np.linalg.norm(norms))
    factor = 1.0 if kind == "clipvalue" else rng.uniform(0.3, 1.5)
    return {kind: round_number(max(limit * factor, 1e-12))}
