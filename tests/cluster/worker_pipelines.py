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
        return self.mix(examples).shard(self.workers, number).batch(4)

    def mix(self, examples: Any) -> Any:
        return examples


class ByOneWorkerTooMany(ByWorker):
    """The examples are cut for a worker that there is not."""

    workers = 3


class DropsInEachShare(ByWorker):
    """24 examples are 3 batches of 7 on one device, and 1 of each worker's 12."""

    def dataset_fn(self, context: Any) -> Any:
        dataset = super().dataset_fn(context)
        return dataset.unbatch().batch(7, drop_remainder=True)


class InAnOrderOfItsOwn(ByWorker):
    """Each worker takes every n-th example of an order that no seed makes alike."""

    def mix(self, examples: Any) -> Any:
        return examples.shuffle(24)


class InOneOrder(ByWorker):
    """The same with a seed."""

    def mix(self, examples: Any) -> Any:
        return examples.shuffle(24, seed=5)
