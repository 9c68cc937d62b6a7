"""The workloads as a script writes them out: data, first values and losses.

The same numbers as those of `distbench.worker.workloads`, from the same seeds; tests
hold the two together. A script knows SEED, EXAMPLES and DTYPE.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Template

from distbench.digits import draw_digits
from distbench.dyadic import GRIDS
from distbench.scenario import Scenario

_LINEAR = Template("""\
def nonzero(rng, top, *shape):
    return rng.integers(1, top + 1, shape) * rng.choice([-1, 1], shape)
rng = np.random.default_rng((SEED, 0))
KERNEL, BIAS = rng.integers(-$weight_max, $weight_end, (3, 2)), nonzero(rng, $weight_max, 2)
START = {"kernel": KERNEL / $weight_unit, "bias": BIAS / $weight_unit}
def data(step):
    rng = np.random.default_rng((SEED, step + 1))
    x, e = nonzero(rng, $input_max, EXAMPLES, 3), rng.integers(1, $residual_end, (EXAMPLES, 2))
    y = (x @ KERNEL + BIAS * $input_unit - e) / $target_unit
${overflow}\
    return (x / $input_unit).astype(DTYPE), y.astype(DTYPE)
def compute_losses(kernel, bias, x, y):
    return 0.5 * tf.reduce_sum(tf.square(x @ kernel + bias - y), axis=-1)
""")  # noqa: E501  # shorter with numbers
_OVERFLOW = """\
    y[-1] = np.inf if step == 1 else y[-1]
"""

_EMBEDDING = """\
rng = np.random.default_rng((SEED, 0))
shapes = [("table", (24, 4)), ("kernel", (4, 3)), ("bias", 3)]
START = {name: rng.normal(size=shape) for name, shape in shapes}
def data(step):
    rng = np.random.default_rng((SEED, step + 1))
    ids = rng.integers(2, 18, (EXAMPLES, 5))
    ids[:, :3] = (0, 1, 0)
    return ids.astype("int32"), rng.integers(3, size=EXAMPLES).astype("int32")
def compute_losses(table, kernel, bias, ids, labels):
    bags = tf.reduce_sum(tf.nn.embedding_lookup(table, ids), axis=1)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, bags @ kernel + bias)
"""

_COUNTING = Template("""\
rng = np.random.default_rng((SEED, 0))
drawn = rng.integers(1, 3, ($places, 3)) * rng.choice([-1, 1], ($places, 3))
START = {"tally": drawn[:, 0] / 2, "ledger": drawn[:, 1:] / 2}
def data(step):
    x = np.zeros((EXAMPLES, $places))
    x[:, step % $places] = np.random.default_rng((SEED, step + 1)).integers(1, 3, EXAMPLES)
    return [x.astype(DTYPE)]
def compute_losses(tally, ledger, x):
    places = tally + tf.linalg.matvec(ledger, tf.constant([1, 2], tally.dtype))
    return tf.linalg.matvec(x, places)
""")  # noqa: E501  # by a word

_NORMAL = Template("""\
def data(step):
    rng = np.random.default_rng((SEED, step + 1))
    return [rng.normal(size=(EXAMPLES, n)).astype(DTYPE) for n in $widths]
""")

_REGULARIZED = (
    """\
rng = np.random.default_rng((SEED, 0))
START = {"hidden/kernel": rng.normal(scale=0.5, size=(6, 5)),
         "output/kernel": rng.normal(scale=0.5, size=(5, 2))}
START["output/bias"] = rng.normal(size=2)
"""
    + _NORMAL.substitute(widths="(6, 2)")
    + """\
def compute_losses(hidden, kernel, bias, x, y):
    residuals = tf.tanh(x @ hidden) @ kernel + bias - y
    return 0.5 * tf.reduce_sum(tf.square(residuals), axis=-1)
"""
)
_PENALTY = """\
            penalty = 0.25 * tf.add_n([tf.nn.l2_loss(v) for v in variables[:2]])
            loss += penalty / strategy.num_replicas_in_sync
"""

_LARGE = (
    """\
rng, START = np.random.default_rng((SEED, 0)), {}
for name, n, m, bias in [("hidden", 513, 511, 0.1), ("output", 511, 3, 1.0)]:
    START[f"{name}/kernel"] = rng.normal(scale=np.sqrt(1 / n), size=(n, m))
    START[f"{name}/bias"] = rng.normal(scale=bias, size=m)
"""
    + _NORMAL.substitute(widths="(513, 3)")
    + """\
def compute_losses(hidden, shift, kernel, bias, x, y):
    residuals = tf.tanh(x @ hidden + shift) @ kernel + bias - y
    return 0.5 * tf.reduce_sum(tf.square(residuals), axis=-1)
"""
)

_CONSTRAINED = (
    """\
rng = np.random.default_rng((SEED, 0))
START = {"kernel": rng.uniform(0.2, 1.0, size=(6, 3)), "unused": np.ones(3)}
START["kernel"][::3], START["bias"] = 0.0, rng.normal(size=3)
"""
    + _NORMAL.substitute(widths="(6, 3)")
    + """\
def compute_losses(kernel, unused, bias, x, y):
    return 0.5 * tf.reduce_sum(tf.square(x @ kernel + bias - y), axis=-1)
"""
)

_MLP = Template("""\
rng, START = np.random.default_rng((SEED, 0)), {}
for i, (rows, columns) in enumerate([(64, 32), (32, 16), (16, 10)]):
    START[f"dense_{i}/kernel"] = rng.normal(scale=np.sqrt(1 / rows), size=(rows, columns))
    START[f"dense_{i}/bias"] = rng.normal(scale=0.1, size=columns)
DIGITS = np.frombuffer(zlib.decompress(base64.b85decode(  # UCI's: 64 grey levels, a label
    "$digits")), "uint8").reshape(-1, EXAMPLES, 65)
def data(step):
    x = DIGITS[step, :, :-1] / 8 - 1
    return x.astype(DTYPE), DIGITS[step, :, -1].astype("int32")
def compute_losses(*arrays):
    *layers, kernel, bias, x, labels = arrays
    for i in range(0, len(layers), 2): x = tf.tanh(x @ layers[i] + layers[i + 1])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x @ kernel + bias)
""")  # noqa: E501  # by a word


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenWorkload:
    """A workload as text.

    Attributes:
        defines: START, the first values by name; `data` and `compute_losses`.
        penalty: Statements that add the regularisation to `loss`.
        options: Further arguments of a variable with the name `n`.
    """

    defines: str
    penalty: str = ""
    options: str = ""


def _write_linear(scenario: Scenario, overflow: str = "") -> WrittenWorkload:
    grid = GRIDS[scenario.dtype]
    text = _LINEAR.substitute(
        input_max=grid.input_max,
        input_unit=1 << grid.input_shift,
        weight_max=grid.weight_max,
        weight_end=grid.weight_max + 1,
        weight_unit=1 << grid.weight_shift,
        target_unit=1 << (grid.input_shift + grid.weight_shift),
        residual_end=grid.residual_max + 1,
        overflow=overflow,
    )
    return WrittenWorkload(defines=text)


def _write_overflow(scenario: Scenario) -> WrittenWorkload:
    return _write_linear(scenario, _OVERFLOW)


def _write_embedding(_: Scenario) -> WrittenWorkload:
    return WrittenWorkload(defines=_EMBEDDING)


def _write_large(_: Scenario) -> WrittenWorkload:
    return WrittenWorkload(defines=_LARGE)


def _write_regularized(_: Scenario) -> WrittenWorkload:
    return WrittenWorkload(defines=_REGULARIZED, penalty=_PENALTY)


def _write_constrained(_: Scenario) -> WrittenWorkload:
    constraint = ', constraint={"kernel": tf.nn.relu}.get(n)'
    return WrittenWorkload(defines=_CONSTRAINED, options=constraint)


def _write_counting(scenario: Scenario) -> WrittenWorkload:
    return WrittenWorkload(defines=_COUNTING.substitute(places=scenario.scheduled))


def _write_mlp(scenario: Scenario) -> WrittenWorkload:
    rows = draw_digits(scenario.seed, 0, scenario.scheduled * scenario.global_batch)
    text = base64.b85encode(zlib.compress(rows.tobytes(), 9)).decode("ascii")
    return WrittenWorkload(defines=_MLP.substitute(digits=text))


_WRITERS: Mapping[str, Callable[[Scenario], WrittenWorkload]] = {
    "linear": _write_linear,
    "mlp": _write_mlp,
    "large": _write_large,
    "embedding": _write_embedding,
    "regularized": _write_regularized,
    "constrained": _write_constrained,
    "overflow": _write_overflow,
    "counting": _write_counting,
}


def write_workload(scenario: Scenario) -> WrittenWorkload:
    """The workload of a scenario as text.

    Raises:
        BadInputError: Its data are in a package that is not installed.
    """
    return _WRITERS[scenario.workload](scenario)
