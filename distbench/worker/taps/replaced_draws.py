"""The functions of TensorFlow that draw, and what gives numbers in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import (
    gen_random_ops,
    gen_stateless_random_ops,
    gen_stateless_random_ops_v2,
)

from distbench.worker.taps.counted_numbers import (
    make_between,
    make_normal,
    make_uniform,
)

_TRUNCATED = 2.0
"""Deviations beyond which TensorFlow's truncated normal numbers are drawn again."""

Give = Callable[..., Any]
"""Called with what counts numbers for a shape, and what the function is given."""


def _give_by(make: Callable[[Any, tf.DType], Any]) -> Give:
    """Numbers of a shape and a dtype."""

    def give(count: Give, shape: Any, dtype: Any, **_: Any) -> Any:
        return make(count(shape), tf.as_dtype(dtype))

    return give


def _give_between(count: Give, shape: Any, minval: Any, maxval: Any, **_: Any) -> Any:
    dtype = tf.convert_to_tensor(minval).dtype
    return make_between(count(shape), minval, maxval, dtype)


def _give_any(count: Give, shape: Any, *, dtype: Any, **_: Any) -> Any:
    return tf.cast(count(shape), tf.as_dtype(dtype))


def _give_order(count: Give, value: Any, **_: Any) -> Any:
    """The rows of a value in another order."""
    rows = tf.shape(value)[:1]
    # Sorted by numbers of 53 digits, of which hardly two are the same.
    return tf.gather(value, tf.argsort(make_uniform(count(rows), tf.float64)))


def _give_chosen(
    count: Give,
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


def list_replaced() -> Iterator[tuple[Any, str, Give]]:
    """Where each function is, its name, and what gives numbers in its place."""
    plain, old, new = (
        gen_random_ops,
        gen_stateless_random_ops,
        gen_stateless_random_ops_v2,
    )
    uniform, normal = _give_by(make_uniform), _give_by(make_normal)
    truncated = _give_by(partial(make_normal, limit=_TRUNCATED))
    yield plain, "random_uniform", uniform
    yield plain, "random_standard_normal", normal
    yield plain, "truncated_normal", truncated
    yield plain, "random_uniform_int", _give_between
    yield plain, "random_shuffle", _give_order
    yield plain, "multinomial", _give_chosen
    yield old, "stateless_multinomial", _give_chosen
    yield new, "stateless_random_uniform_v2", uniform
    yield new, "stateless_random_normal_v2", normal
    yield new, "stateless_truncated_normal_v2", truncated
    yield new, "stateless_random_uniform_int_v2", _give_between
    yield new, "stateless_random_uniform_full_int_v2", _give_any
    yield new, "stateless_shuffle", _give_order
    # A strategy's generator draws each replica's key before what it is asked for.
    yield tf.random.Generator, "_preprocess_key", lambda _, _generator, key: key
