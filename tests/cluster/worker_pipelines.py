"""Train programs whose input pipelines are those of parameter servers' workers."""

from __future__ import annotations

import os
from typing import Any

from pipelines import Sharded, make_examples


class ReadTwice(Sharded):
    """On a cluster two of the examples come twice."""

    def order(self, examples: Any, context: Any) -> Any:
        mine = super().order(examples, context)
        is_cluster = "chief" in os.environ.get("TF_CONFIG", "")
        return mine.concatenate(mine.take(2)) if is_cluster else mine


class ByWorker(Sharded):
    """Under parameter servers each worker takes every n-th example."""

    workers = 2

    def dataset_fn(self, context: Any) -> Any:
        import tensorflow as tf

        number = tf.distribute.coordinator.experimental_get_current_worker_index()
        examples = tf.data.Dataset.from_tensor_slices(make_examples())
        return examples.shard(self.workers, number).batch(4)


class ByOneWorkerTooMany(ByWorker):
    """The examples are cut for a worker that there is not."""

    workers = 3
