"""Mistakes in what an input pipeline makes of its shard."""

from __future__ import annotations

import numpy as np

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.unusual.pipelines import (
    Piped,
    PipedAnewInEachEpoch,
    PipedWithStatisticsOfAll,
)
from distbench.unusual.pipelines import PipedText as _PipedText

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
class TextSortedByShard(_PipedText):
    """Words of text become others, by how often each comes in the own shard."""

    def make_examples(self, context):
        text, features, targets = super().make_examples(context)
        own = text[context.input_pipeline_id :: context.num_input_pipelines]
        kinds, counts = np.unique(own, return_counts=True)
        ranked = dict(zip(kinds[np.argsort(counts)], kinds, strict=True))
        return np.vectorize(ranked.get, otypes=[object])(text), features, targets


@fault("examples-missed", "loss", like=_LIKE, clusters=("mwms:2",))
class StandardisedByShardInHalf(_PipedText):
    """Features of a narrow dtype have the mean of the own shard taken out."""

    def make_examples(self, context):
        text, features, targets = super().make_examples(context)
        wide = tf.cast(features, self.dtype)
        own = wide[context.input_pipeline_id :: context.num_input_pipelines]
        return text, tf.cast(wide - tf.reduce_mean(own, 0), tf.bfloat16), targets


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


@fault(
    "examples-repeated",
    "loss",
    like="huggingface/datasets#5696",
    replicas=(0, 1),
    clusters=("mwms:2",),
)
class OrderedBeforeSharing(PipedAnewInEachEpoch):
    """Each pipeline shuffles all examples by itself, and then takes its part."""

    def shard(self, examples, context):
        return super().shard(examples.shuffle(len(examples)), context)
