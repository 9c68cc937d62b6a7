"""Aggregation paths for an optimizer under a workload of the bench."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distbench.worker.families import find_family
from distbench.worker.families.family import Pairs

_CLIP = 0.25
"""Below the workloads' gradient norms, so that clipping really acts."""


def _leave(optimizer: Any) -> None:
    """Change nothing."""


def _apply(optimizer: Any, pairs: Pairs) -> None:
    find_family(optimizer).hand_over(optimizer, pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationPath:
    """How the gradients of a step get summed.

    Attributes:
        configure: Changes the optimizer after it was made.
        apply: Hands the gradients to the optimizer.
        scales_loss: Whether each replica's loss is N times its share.
    """

    configure: Callable[[Any], None] = _leave
    apply: Callable[[Any, Pairs], None] = _apply
    scales_loss: bool = False


def _reduce(operation: Any, pairs: Pairs) -> Pairs:
    """All-reduce what has a gradient."""
    kept = [
        (gradient, variable) for gradient, variable in pairs if gradient is not None
    ]
    context = tf.distribute.get_replica_context()
    sums = context.all_reduce(operation, [gradient for gradient, _ in kept])
    return list(zip(sums, (variable for _, variable in kept), strict=True))


def _sum(pairs: Pairs) -> Pairs:
    return _reduce(tf.distribute.ReduceOp.SUM, list(pairs))


def _mean(pairs: Pairs) -> Pairs:
    return _reduce(tf.distribute.ReduceOp.MEAN, list(pairs))


def _sum_in_two_stages(pairs: Pairs) -> Pairs:
    """Dense gradients first, then the sparse ones, as fusing aggregators do."""
    pairs = [pair for pair in pairs if pair[0] is not None]
    is_sparse = [isinstance(gradient, tf.IndexedSlices) for gradient, _ in pairs]
    by_kind = {
        kind: iter(
            _sum([p for p, s in zip(pairs, is_sparse, strict=True) if s is kind])
        )
        for kind in (False, True)
        if kind in is_sparse
    }
    return [next(by_kind[sparse]) for sparse in is_sparse]


def _set(name: str, value: Any) -> Callable[[Any], None]:
    def configure(optimizer: Any) -> None:
        setattr(optimizer, name, value)

    return configure


def _square(pairs: Pairs) -> Pairs:
    """A transformer whose order relative to the sum cannot be mistaken.

    Squaring is not linear: the square of a sum is not the sum of squares.
    """
    return [(_map_values(gradient, _square_signed), v) for gradient, v in pairs]


def _square_signed(values: Any) -> Any:
    return values * tf.abs(values)


def _map_values(gradient: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        # Rows may repeat: a rule that is not linear needs their sums.
        dense = tf.convert_to_tensor(gradient)
        return function(dense)
    return function(gradient)


def _apply_without_aggregation(optimizer: Any, pairs: Pairs) -> None:
    find_family(optimizer).hand_over(optimizer, pairs, aggregate=False)


def _apply_after_sum(optimizer: Any, pairs: Pairs) -> None:
    _apply_without_aggregation(optimizer, _sum(pairs))


AGGREGATION_PATHS: dict[str, AggregationPath] = {
    "default": AggregationPath(),
    "aggregator": AggregationPath(configure=_set("gradient_aggregator", _sum)),
    "aggregator-mean": AggregationPath(
        configure=_set("gradient_aggregator", _mean), scales_loss=True
    ),
    "aggregator-two-stage": AggregationPath(
        configure=_set("gradient_aggregator", _sum_in_two_stages)
    ),
    "user": AggregationPath(apply=_apply_after_sum),
    "none": AggregationPath(apply=_apply_without_aggregation),
    "transformers": AggregationPath(configure=_set("gradient_transformers", [_square])),
    "clipvalue": AggregationPath(configure=_set("clipvalue", _CLIP)),
    "clipnorm": AggregationPath(configure=_set("clipnorm", _CLIP)),
    "global-clipnorm": AggregationPath(configure=_set("global_clipnorm", _CLIP)),
}
