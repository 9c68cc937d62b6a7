"""The aggregation paths as a script writes them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_AGGREGATE = """\
def aggregate(pairs):
    gradients, variables = zip(*[pair for pair in pairs if pair[0] is not None])
    context = tf.distribute.get_replica_context()
    return list(zip(context.all_reduce("{operation}", gradients), variables))
"""
_TWO_STAGES = """\
def aggregate_in_two_stages(pairs):
    pairs = [pair for pair in pairs if pair[0] is not None]
    sparse = [isinstance(g, tf.IndexedSlices) for g, _ in pairs]
    parts = {k: [p for p, s in zip(pairs, sparse) if s is k] for k in sorted({*sparse})}
    sums = {k: iter(aggregate(part)) for k, part in parts.items()}
    return [next(sums[k]) for k in sparse]
"""
_SQUARE = """\
def square(pairs):
    dense = [(tf.convert_to_tensor(g), v) for g, v in pairs if g is not None]
    return [(g * tf.abs(g), v) for g, v in dense]
"""
_CLIP = "0.25"
# What the families call the same thing: that of v1 knows the second name alone.
_ALONE = """\
v1 = isinstance(optimizer, tf.compat.v1.train.Optimizer)
alone = "skip_gradients_aggregation" if v1 else "experimental_aggregate_gradients"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPath:
    """How a script hands gradients to the optimizer.

    Attributes:
        defines: Functions that it needs.
        configure: Statements after the optimizer was made.
        apply: The arguments of `apply_gradients`, in terms of `{pairs}`.
        scales_loss: Whether each replica's loss is N times its share.
    """

    defines: str = ""
    configure: str = ""
    apply: str = "{pairs}"
    scales_loss: bool = False


_SUM = _AGGREGATE.format(operation="SUM")
WRITTEN_PATHS: Mapping[str, WrittenPath] = MappingProxyType(
    {
        "default": WrittenPath(),
        "aggregator": WrittenPath(
            defines=_SUM, configure="optimizer.gradient_aggregator = aggregate\n"
        ),
        "aggregator-mean": WrittenPath(
            defines=_AGGREGATE.format(operation="MEAN"),
            configure="optimizer.gradient_aggregator = aggregate\n",
            scales_loss=True,
        ),
        "aggregator-two-stage": WrittenPath(
            defines=_SUM + _TWO_STAGES,
            configure="optimizer.gradient_aggregator = aggregate_in_two_stages\n",
        ),
        "user": WrittenPath(
            defines=_SUM,
            configure=_ALONE,
            apply="aggregate({pairs}), **{{alone: v1}}",
        ),
        "none": WrittenPath(
            configure=_ALONE,
            apply="{pairs}, **{{alone: v1}}",
        ),
        "transformers": WrittenPath(
            defines=_SQUARE, configure="optimizer.gradient_transformers = [square]\n"
        ),
        "clipvalue": WrittenPath(configure=f"optimizer.clipvalue = {_CLIP}\n"),
        "clipnorm": WrittenPath(configure=f"optimizer.clipnorm = {_CLIP}\n"),
        "global-clipnorm": WrittenPath(
            configure=f"optimizer.global_clipnorm = {_CLIP}\n"
        ),
    }
)
