"""Train programs whose input pipeline cannot be read, anywhere or on a cluster."""

from __future__ import annotations

from typing import Any

from pipelines import Sharded


class Unreadable(Sharded):
    """Raises wherever it is read."""

    def dataset_fn(self, context: Any) -> Any:
        raise LookupError("no files")


class ReadableByOne(Sharded):
    """Raises where there are several pipelines."""

    def dataset_fn(self, context: Any) -> Any:
        if context.num_input_pipelines > 1:
            raise LookupError("no part of the files")
        return super().dataset_fn(context)


class GivesNothing(Sharded):
    """The return is missing."""

    def dataset_fn(self, context: Any) -> Any:
        super().dataset_fn(context)


class TakesNothing(Sharded):
    """Knows of no context."""

    def dataset_fn(self) -> Any:  # type: ignore[override]  # that is what is wrong
        return None


class Empty(Sharded):
    """There is no example."""

    def dataset_fn(self, context: Any) -> Any:
        return super().dataset_fn(context).take(0)


class GivesRagged(Sharded):
    """Examples have several lengths."""

    def dataset_fn(self, context: Any) -> Any:
        import tensorflow as tf

        def shorten(x: Any, y: Any) -> Any:
            return tf.RaggedTensor.from_tensor(x, tf.range(len(x)) % 3), y

        return super().dataset_fn(context).map(shorten)
