"""What is learned: a model, its data and the loss, drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Random = np.random.Generator

ACTIVATIONS = ("tanh", "sigmoid", "softplus", "relu", "elu", "linear")
LOSSES = ("squares", "cross entropy", "huber")
NORMALISERS = ("examples", "weights", "words")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An embedding: the mean of the rows of an example's words.

    Attributes:
        name: What its variables begin with.
        rows: Rows; the last one is never used.
        width: Numbers of a row.
        words: Words of an example.
        projected: Whether a kernel leads to the hidden layer.
    """

    name: str
    rows: int
    width: int
    words: int
    projected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A model with its data and loss.

    Attributes:
        seed: Seed of initial values and data.
        tables: Embeddings whose means are added up.
        features: Numbers that are the input of a kernel; 0 for none.
        hidden: Width of the hidden layer.
        outputs: Numbers of an output.
        bias: Whether the hidden layer has a bias.
        gain: Factor behind the activation: `none`, `one` or `each`.
        middle: Whether a square kernel follows, with an activation.
        head: Whether a kernel leads to the outputs.
        offset: Whether these have a bias.
        activation: One of `ACTIVATIONS`.
        loss: One of `LOSSES`.
        delta: Where Huber's loss becomes linear, in units of the targets.
        examples: Size of the global batch, G.
        unit_in: Scale of the features.
        unit_out: Scale of the targets.
        normaliser: What the loss is a mean over; one of `NORMALISERS`.
        penalties: L1 and L2 weight by variable.
        dtype: Of variables and data.
    """

    seed: int
    tables: tuple[Table, ...]
    features: int
    hidden: int
    outputs: int
    bias: bool
    gain: str
    middle: bool
    head: bool
    offset: bool
    activation: str
    loss: str
    delta: float
    examples: int
    unit_in: float
    unit_out: float
    normaliser: str
    penalties: Mapping[str, tuple[float, float]]
    dtype: str

    def list_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the variables by name, in the order of the layers."""
        shapes: dict[str, tuple[int, ...]] = {}
        for table in self.tables:
            shapes[f"{table.name}/table"] = (table.rows, table.width)
            if table.projected:
                shapes[f"{table.name}/kernel"] = (table.width, self.hidden)
        if self.features:
            shapes["inputs/kernel"] = (self.features, self.hidden)
        if self.bias:
            shapes["hidden/bias"] = (self.hidden,)
        if self.gain != "none":
            shapes["hidden/gain"] = () if self.gain == "one" else (self.hidden,)
        if self.middle:
            shapes["middle/kernel"] = (self.hidden, self.hidden)
        if self.head:
            shapes["head/kernel"] = (self.hidden, self.outputs)
        if self.offset:
            shapes["head/bias"] = (self.outputs,)
        return shapes

    def list_sparse(self) -> tuple[str, ...]:
        """Variables whose gradients are slices: tables without a penalty."""
        names = [f"{table.name}/table" for table in self.tables]
        return tuple(name for name in names if name not in self.penalties)

    def draw_values(self) -> dict[str, Array]:
        """Initial values of the variables, such that no layer saturates."""
        rng = np.random.default_rng((self.seed, 0))
        scales = {
            "inputs/kernel": 1 / self.unit_in,
            "head/kernel": self.unit_out,
            "head/bias": 0.3 * self.unit_out,
            "hidden/bias": 0.3,
        }
        values = {}
        for name, shape in self.list_shapes().items():
            drawn = rng.normal(size=shape) * scales.get(name, 1.0)
            if name.endswith("kernel"):
                drawn = drawn / np.sqrt(shape[0])
            if name.endswith("gain"):
                drawn = 1 + 0.2 * drawn
            values[name] = np.asarray(drawn, self.dtype)
        return values

    def draw_batch(self, step: int) -> dict[str, Array]:
        """The global batch of a step.

        Every replica has the first two rows of each table, several times, and other
        rows that some of the others lack.
        """
        rng = np.random.default_rng((self.seed, step + 1))
        count = self.examples
        batch: dict[str, Array] = {}
        for table in self.tables:
            words = rng.integers(0, table.rows - 1, size=(count, table.words))
            words[:, 0] = np.arange(count) % 3 == 1
            batch[f"{table.name}/words"] = words
        if self.features:
            drawn = rng.normal(size=(count, self.features)) * self.unit_in
            batch["features"] = drawn.astype(self.dtype)
        if self.loss == "cross entropy":
            batch["labels"] = rng.integers(0, self.outputs, size=count)
        else:
            drawn = rng.normal(size=(count, self.outputs)) * self.unit_out
            batch["targets"] = drawn.astype(self.dtype)
        if self.normaliser == "weights":
            batch["weights"] = rng.uniform(0.3, 3.0, size=count).astype(self.dtype)
        return batch

    def describe(self) -> str:
        """The model in a line."""
        sizes = [int(np.prod(shape)) for shape in self.list_shapes().values()]
        penalty = (
            f", a penalty on {', '.join(self.penalties)}" if self.penalties else ""
        )
        return (
            f"{len(sizes)} variables of {min(sizes)} to {max(sizes)} numbers "
            f"({self.dtype}), {self.activation}, {self.loss} over {self.normaliser}"
            f"{penalty}, {self.examples} examples"
        )


def draw_problem(rng: Random) -> Problem:
    """A model of one to eight variables, without penalties."""
    hidden = int(rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 40], p=_HIDDEN))
    tables = _draw_tables(rng, hidden)
    features = 0
    if not tables or rng.random() < 0.6:
        features = int(rng.choice([1, 2, 3, 4, 5, 7, 10, 50], p=_FEATURES))
        if tables and tables[0].projected and rng.random() < 0.6:
            features = tables[0].width  # two kernels of the same shape
        elif rng.random() < 0.2:
            features = hidden
    head = bool(rng.random() < 0.7)
    outputs = int(rng.integers(1, 6)) if head else hidden
    loss = str(rng.choice(LOSSES))
    if loss == "cross entropy" and outputs < 2:
        loss = "squares"
    scaled = rng.random() < 0.4
    problem = Problem(
        seed=int(rng.integers(1 << 31)),
        tables=tables,
        features=features,
        hidden=hidden,
        outputs=outputs,
        bias=bool(rng.random() < 0.6),
        gain=str(rng.choice(["none", "one", "each"], p=[0.6, 0.2, 0.2])),
        middle=bool(hidden > 1 and rng.random() < 0.3),
        head=head,
        offset=bool(rng.random() < 0.4),
        activation=str(rng.choice(ACTIVATIONS)),
        loss=loss,
        delta=float(rng.uniform(0.3, 2.0)),
        examples=int(rng.choice([g for g in range(22, 61) if g != 32])),
        unit_in=float(10 ** rng.uniform(-3, 3)) if features and scaled else 1.0,
        unit_out=_draw_unit(rng, scaled=scaled and head and loss != "cross entropy"),
        normaliser=_draw_normaliser(rng, tables),
        penalties={},
        dtype=str(rng.choice(["float32", "float64"], p=[0.8, 0.2])),
    )
    if len(problem.list_shapes()) > 8:
        problem = replace(problem, offset=False, gain="none")
    return problem


_HIDDEN = (0.05, 0.1, 0.15, 0.2, 0.15, 0.15, 0.1, 0.05, 0.05)
_FEATURES = (0.05, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05)


def _draw_tables(rng: Random, hidden: int) -> tuple[Table, ...]:
    tables = []
    for name in ("words", "tags")[: int(rng.choice([0, 1, 2], p=[0.3, 0.5, 0.2]))]:
        projected = bool(rng.random() < 0.6)
        tables.append(
            Table(
                name=name,
                rows=int(rng.choice([5, 7, 9, 13, 30, 300], p=_ROWS)),
                width=int(rng.integers(1, 9)) if projected else hidden,
                words=int(rng.choice([1, 2, 3, 5])),
                projected=projected,
            )
        )
    return tuple(tables)


_ROWS = (0.2, 0.25, 0.2, 0.2, 0.1, 0.05)


def _draw_unit(rng: Random, *, scaled: bool) -> float:
    return float(10 ** rng.uniform(-3, 3)) if scaled else 1.0


def _draw_normaliser(rng: Random, tables: tuple[Table, ...]) -> str:
    kinds = NORMALISERS if tables else NORMALISERS[:2]
    return str(rng.choice(kinds)) if rng.random() < 0.5 else "examples"


def draw_penalties(
    rng: Random, problem: Problem, gradients: Mapping[str, Array]
) -> dict[str, tuple[float, float]]:
    """L1 and L2 weights of some of the larger variables, as strong as the loss pulls.

    Args:
        rng: Where it is drawn from.
        problem: What gets the penalties.
        gradients: Gradient of the loss over the whole batch.
    """
    values = problem.draw_values()
    large = [name for name in values if values[name].size >= 12]
    if not large:
        return {}
    count = int(rng.integers(1, min(3, len(large)) + 1))
    kind = str(rng.choice(["l1", "l2", "both"]))
    found = {}
    for name in rng.choice(large, size=count, replace=False):
        pull = float(rng.uniform(0.1, 1.0)) * measure_rms(gradients[name])
        first = 0.0 if kind == "l2" else pull
        second = 0.0 if kind == "l1" else pull / (2 * measure_rms(values[name]))
        found[str(name)] = (round_number(first), round_number(second))
    return found


def measure_rms(array: Array) -> float:
    """Root of the mean of the squares."""
    return float(np.sqrt(np.mean(np.square(np.asarray(array, np.float64)))))


def round_number(number: float) -> float:
    """Two digits, as users write numbers."""
    return float(f"{number:.1e}")
