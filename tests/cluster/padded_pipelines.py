"""Train programs whose pipelines pad sequences; tests check them by their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from pipelines import EXAMPLES, GLOBAL_BATCH, Sharded, make_examples


class Padded(Sharded):
    """Sequences are padded to the longest of the replica's own batch."""

    filled = 0.0

    def dataset_fn(self, context: Any) -> Any:
        import tensorflow as tf

        x, y = make_examples()
        chances = (0.6, 0.3, 0.1)
        lengths = np.random.default_rng(0).choice([1, 2, 3], EXAMPLES, p=chances)
        examples = tf.data.Dataset.from_tensor_slices((x, y, lengths))
        own = self.order(examples, context).map(lambda x, y, n: (x[:n], y))
        size = context.get_per_replica_batch_size(GLOBAL_BATCH)
        values = (self.filled, 0.0)
        return own.padded_batch(size, ([None], [1]), values)

    def replica_step(self, batch: Any) -> Any:
        import tensorflow as tf

        x, y = batch
        x = tf.where(x == self.filled, 0.0, x)
        return super().replica_step((tf.pad(x, [(0, 0), (0, 3)])[:, :3], y))


class PaddedByOther(Padded):
    """What fills sequences up is no zero."""

    filled = -9.0


class PaddedNotSharded(Padded):
    """Each replica reads all sequences, one ahead of the other."""

    def order(self, examples: Any, context: Any) -> Any:
        first = 3 * context.input_pipeline_id
        return examples.skip(first).concatenate(examples.take(first))


class PaddedByOtherNotSharded(PaddedNotSharded):
    """The same where what fills them up is no zero."""

    filled = -9.0
