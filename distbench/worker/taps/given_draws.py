"""Random numbers that belong to examples, in the place of those that a step draws.

What a step draws is drawn anew whenever it runs, so of a step that draws one device
shows no more than scatter, in which mistakes hide. Inside a step that is given its
numbers each row of a draw with a row for each example is a function of that example,
and everything else that is drawn of the step alone. Then they are data like the
examples: the same on one device, of whichever examples a batch is made.

TensorFlow's functions that make the ops are replaced for the whole process, since
everybody draws by them: its own layers, both Kerases, generators and the user.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.ops import (
    gen_random_ops,
    gen_stateless_random_ops,
    gen_stateless_random_ops_v2,
)
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    WhileBodyFuncGraph,
    WhileCondFuncGraph,
)

from distbench.trace.content import digest_64
from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.process.sources import is_foreign, is_of, is_of_caller
from distbench.worker.taps.counted_numbers import (
    count_numbers,
    make_between,
    make_normal,
    make_uniform,
)

_TRUNCATED = 2.0
"""Deviations beyond which TensorFlow's truncated normal numbers are drawn again."""


class GivenDraws:
    """What the steps of a process are given in the place of what they draw.

    Args:
        replicas: Global numbers of the replicas of this process.
        find_replica: Says for which of them the calling code runs.
        list_shapes: Lists the shapes of all variables.
        device: Where a step's number and its examples are kept.
    """

    def __init__(
        self,
        replicas: Sequence[int],
        find_replica: Callable[[], int],
        list_shapes: Callable[[], Iterable[tuple[int, ...]]],
        device: str,
    ) -> None:
        self._find_replica = find_replica
        self._list_shapes = list_shapes
        with tf.init_scope(), tf.device(device):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._rows = {
                replica: tf.Variable(
                    np.zeros(0, np.int64), shape=[None], trainable=False
                )
                for replica in replicas
            }
        self._local = threading.local()
        self._inside = 0
        self._drawn: Counter[tuple[object, ...]] = Counter()
        for module, name, give in _list_given():
            _replace(module, name, self, give)

    def tell_step(self, step: int) -> None:
        """Say which step comes next."""
        self._step.assign(step)

    def tell_examples(self, shards: Sequence[Any]) -> None:
        """Say on which examples it is run.

        Args:
            shards: By global number of the replica; of one alone, its own.
        """
        for replica, rows in self._rows.items():
            rows.assign(digest_examples(shards[min(replica, len(shards) - 1)]))

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Around a replica's step: inside, what is drawn is given."""
        if not self._inside:
            self._drawn.clear()
        before = getattr(self._local, "eager", None)
        self._local.eager = tf.executing_eagerly()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._local.eager = before

    @property
    def is_inside(self) -> bool:
        """Whether the calling code is a step's, and draws once in it.

        In the middle of one, what makes variables leaves its graph for a while. A loop
        that is given the same numbers in each turn may never end.
        """
        eager = getattr(self._local, "eager", False)
        is_own = self._inside > 0 and tf.executing_eagerly() == eager
        return is_own and not _is_in_loop()

    def count(self, shape: Any) -> Any:
        """Numbers for what is drawn here: uint64 of a shape."""
        shape = tf.convert_to_tensor(shape)
        numbers = count_numbers(shape, self._make_keys(shape), self._make_stream())
        static = tf.get_static_value(shape, partial=True)
        if static is not None:
            numbers.set_shape([None if n is None else int(n) for n in static])
        return numbers

    def _make_keys(self, shape: Any) -> Any:
        if shape.shape[0] in (0, None):
            return tf.zeros([1], tf.uint64)
        number = shape[0]
        places = tf.cast(tf.range(number), tf.int64)
        if tf.distribute.in_cross_replica_context():
            return tf.bitcast(places, tf.uint64)
        # One more, so that there is a row to take where there is no example.
        rows = tf.concat([self._rows[self._find_replica()], tf.zeros([1], tf.int64)], 0)
        examples = tf.size(rows, tf.int64) - 1
        taken = tf.gather(rows, tf.minimum(places, examples))
        has_row_each = tf.equal(tf.cast(number, tf.int64), examples)
        # What is drawn for a variable may happen to have as many rows.
        shapes = [s for s in {*self._list_shapes()} if len(s) == shape.shape[0]]
        if shapes:
            alike = tf.equal(shape[None], tf.constant(sorted(shapes), shape.dtype))
            of_variable = tf.reduce_any(tf.reduce_all(alike, -1))
            has_row_each = tf.logical_and(has_row_each, tf.logical_not(of_variable))
        return tf.bitcast(tf.where(has_row_each, taken, places), tf.uint64)

    def _make_stream(self) -> Any:
        """One for each draw of a step: by its line, and how often that has drawn."""
        line = _find_line()
        place = (
            line,
            threading.get_ident(),
            self._find_replica(),
            tf.distribute.in_cross_replica_context(),
        )
        number = self._drawn[place]
        self._drawn[place] += 1
        own = _digest(f"{line} {number}".encode())
        return tf.bitcast(self._step + tf.constant(own, tf.int64), tf.uint64)


def digest_examples(batch: Any) -> npt.NDArray[np.int64]:
    """A number for each example of a batch, made of all that it consists of."""
    arrays = [np.asarray(array) for array in tf.nest.flatten(batch)]
    examples = min((len(a) for a in arrays if a.ndim), default=0)
    taken = [a for a in arrays if a.ndim and not a.dtype.hasobject]
    found = np.zeros(examples, np.int64)
    for row in range(examples):
        content = b"".join(array[row].tobytes() for array in taken)
        found[row] = _digest(content)
    return found


def _digest(content: bytes) -> int:
    """56 bits, which an int64 has room for."""
    return int.from_bytes(digest_64(np.frombuffer(content, np.uint8))[:7], "little")


def _find_line() -> str:
    """The line that draws, of the user or of a Keras.

    What AutoGraph has made of a function lies in another file each time.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if not is_of(file, "tensorflow") and not is_of_caller(file):
            is_generated = is_foreign(file) and not is_of(file, "keras", "tf_keras")
            return f"{'' if is_generated else file} {function} {frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_in_loop() -> bool:
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if isinstance(graph, (WhileBodyFuncGraph, WhileCondFuncGraph)):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


_Give = Callable[..., Any]
"""Called with `GivenDraws.count` and what the function of TensorFlow is given."""


def _replace(module: Any, name: str, draws: GivenDraws, give: _Give) -> None:
    original = getattr(module, name)

    def draw(*args: Any, **kwargs: Any) -> Any:
        if not draws.is_inside:
            return original(*args, **kwargs)
        return give(draws.count, *args, **kwargs)

    hide_from_autograph(draw)
    setattr(module, name, draw)


def _give_uniform(count: _Give, shape: Any, dtype: Any, **_: Any) -> Any:
    return make_uniform(count(shape), tf.as_dtype(dtype))


def _give_normal(count: _Give, shape: Any, dtype: Any, **_: Any) -> Any:
    return make_normal(count(shape), tf.as_dtype(dtype))


def _give_truncated(count: _Give, shape: Any, dtype: Any, **_: Any) -> Any:
    return make_normal(count(shape), tf.as_dtype(dtype), limit=_TRUNCATED)


def _give_between(count: _Give, shape: Any, minval: Any, maxval: Any, **_: Any) -> Any:
    dtype = tf.convert_to_tensor(minval).dtype
    return make_between(count(shape), minval, maxval, dtype)


def _give_any(count: _Give, shape: Any, *, dtype: Any, **_: Any) -> Any:
    return tf.cast(count(shape), tf.as_dtype(dtype))


def _give_order(count: _Give, value: Any, **_: Any) -> Any:
    """The rows of a value in another order."""
    rows = tf.shape(value)[:1]
    # Sorted by numbers of 53 digits, of which hardly two are the same.
    return tf.gather(value, tf.argsort(make_uniform(count(rows), tf.float64)))


def _give_chosen(
    count: _Give,
    logits: Any,
    num_samples: Any,
    *_seed: Any,
    output_dtype: Any = tf.int64,
    **_: Any,
) -> Any:
    """Classes by their logits: the largest after noise of Gumbel's distribution."""
    logits = tf.convert_to_tensor(logits)
    rows, classes = tf.unstack(tf.shape(logits))
    uniform = make_uniform(count(tf.stack([rows, num_samples, classes])), tf.float32)
    noise = -tf.math.log(-tf.math.log(uniform + 2.0**-25))
    scores = tf.cast(logits, tf.float32)[:, None, :] + noise
    return tf.argmax(scores, -1, output_type=output_dtype)


def _list_given() -> Iterator[tuple[Any, str, _Give]]:
    plain, old, new = (
        gen_random_ops,
        gen_stateless_random_ops,
        gen_stateless_random_ops_v2,
    )
    yield plain, "random_uniform", _give_uniform
    yield plain, "random_standard_normal", _give_normal
    yield plain, "truncated_normal", _give_truncated
    yield plain, "random_uniform_int", _give_between
    yield plain, "random_shuffle", _give_order
    yield plain, "multinomial", _give_chosen
    yield old, "stateless_multinomial", _give_chosen
    yield new, "stateless_random_uniform_v2", _give_uniform
    yield new, "stateless_random_normal_v2", _give_normal
    yield new, "stateless_truncated_normal_v2", _give_truncated
    yield new, "stateless_random_uniform_int_v2", _give_between
    yield new, "stateless_random_uniform_full_int_v2", _give_any
    yield new, "stateless_shuffle", _give_order
    # A strategy's generator draws each replica's key before what it is asked for.
    yield tf.random.Generator, "_preprocess_key", lambda _, _generator, key: key
