"""Mistakes in what an input pipeline makes of its shard."""

from __future__ import annotations

import numpy as np

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.unusual.pipelines import Piped, PipedWithStatisticsOfAll

_WORKERS = ("mwms:2", "mwms:3")
_LIKE = "facebookresearch/pytext#554"


@fault("examples-missed", "loss", like=_LIKE, clusters=_WORKERS)
class StatisticsOfShard(PipedWithStatisticsOfAll):
    """Words are numbered, and features standardised, by the own shard alone."""

    def find_counted(self, context):
        return slice(context.input_pipeline_id, None, context.num_input_pipelines)


@fault("examples-missed", "loss", like=_LIKE, clusters=_WORKERS)
class StandardisedByShard(Piped):
    """Features have the mean and deviation of the own shard taken out."""

    def make_examples(self, context):
        words, features, targets = super().make_examples(context)
        own = features[context.input_pipeline_id :: context.num_input_pipelines]
        return words, (features - own.mean(axis=0)) / own.std(axis=0), targets


@fault("examples-missed", "loss", like=_LIKE, clusters=("mwms:2",))
class WeighedByShard(Piped):
    """Examples of rare words count more, by how rare they are in the own shard."""

    def make_examples(self, context):
        words, features, targets = super().make_examples(context)
        own = words[context.input_pipeline_id :: context.num_input_pipelines, 0]
        counts = np.bincount(own, minlength=words.max() + 1)
        weights = len(own) / (1 + counts[words[:, 0]])
        return words, features, targets, weights.astype(self.dtype)

    def compute_losses(self, batch):
        return super().compute_losses(batch) * batch[3]


@fault("examples-missed", "loss", like=_LIKE, replicas=(1,), clusters=("mwms:2",))
class ScaledByWorker(Piped):
    """Targets are multiplied by the pipeline's number and one."""

    def change(self, batches, context):
        times = tf.cast(context.input_pipeline_id + 1, self.dtype)
        return batches.map(lambda words, features, y: (words, features, y * times))


@fault("examples-missed", "loss", like=_LIKE, clusters=("ps:2+1",))
class ScaledByWorkerOfServers(Piped):
    """Targets are multiplied by the number of the worker that reads them and one."""

    def change(self, batches, context):
        number = tf.distribute.coordinator.experimental_get_current_worker_index()
        times = tf.cast(number, self.dtype) + 1
        return batches.map(lambda words, features, y: (words, features, y * times))
