"""Correct programs with an input pipeline, of which each replica reads a part.

What it reads need not be what one device reads: it may be drawn, mixed or padded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distbench.samples.lazy import tf
from distbench.samples.program import FEATURES, OUTPUTS, ROWS, Program
from distbench.unusual.program import unusual

_EPOCH = 36
_WORKERS = ("mwms:2", "mwms:3")
_SERVERS = ("ps:2+1",)


class Piped(Program):
    """Each pipeline takes every n-th example, and makes its part of a batch of them."""

    data = None  # type: ignore[assignment]  # the pipeline is in its place
    examples = 12

    def dataset_fn(self, context: Any) -> Any:
        """The batches of a pipeline, each with words, features and targets."""
        own = self.take_own(context)
        size = context.get_per_replica_batch_size(self.examples)
        return self.change(self.make_batches(own, size), context)

    def take_own(self, context: Any) -> Any:
        """The examples of a pipeline."""
        examples = tf.data.Dataset.from_tensor_slices(self.make_examples(context))
        return self.shard(examples, context)

    def shard(self, examples: Any, context: Any) -> Any:
        """A pipeline's part of all examples."""
        return examples.shard(context.num_input_pipelines, context.input_pipeline_id)

    def make_examples(self, context: Any) -> tuple[Any, Any, Any]:
        """Words, features and targets of the whole epoch."""
        del context
        rng = np.random.default_rng(17)
        words = rng.integers(0, ROWS - 1, size=(_EPOCH, 3))
        features = 3 + 2 * rng.normal(size=(_EPOCH, FEATURES))
        targets = rng.normal(size=(_EPOCH, OUTPUTS))
        return words, features.astype(self.dtype), targets.astype(self.dtype)

    def make_batches(self, own: Any, size: int) -> Any:
        """Batches of a pipeline's examples."""
        return own.batch(size)

    def change(self, batches: Any, context: Any) -> Any:
        """What becomes of the batches."""
        del context
        return batches


@unusual(clusters=_WORKERS)
class PipedWithStatisticsOfAll(Piped):
    """Features are standardised, words numbered and examples weighed by all of them."""

    def make_examples(self, context):
        words, features, targets = super().make_examples(context)
        counted = words[self.find_counted(context)]
        _, first = np.unique(counted, return_index=True)
        order = counted.ravel()[np.sort(first)]
        numbers = np.array([np.argmax(order == word) for word in range(ROWS)])
        own = features[self.find_counted(context)]
        standard = (features - own.mean(axis=0)) / own.std(axis=0)
        return numbers[words], standard, targets

    def find_counted(self, context):
        del context
        return slice(None)


@unusual(clusters=(*_WORKERS, *_SERVERS))
class PipedText(Piped):
    """Words are text, of several lengths, and features have a narrow dtype."""

    def make_examples(self, context):
        words, features, targets = super().make_examples(context)
        text = np.array([b"w" * length + b"\0" for length in range(ROWS)], object)
        return text[words], tf.cast(features, tf.bfloat16), targets

    def predict(self, batch):
        words = tf.strings.length(batch[0]) - 1
        return super().predict((words, tf.cast(batch[1], self.dtype)))


@unusual(clusters=_WORKERS)
class PipedWithBatchesMixed(Piped):
    """Each example is mixed with another one of its batch."""

    def change(self, batches, context):
        def mix(words, features, targets):
            return words, *(0.7 * a + 0.3 * a[::-1] for a in (features, targets))

        return batches.map(mix)


@unusual(clusters=_WORKERS)
class PipedWithBatchesStandardised(Piped):
    """Features are standardised by their batch."""

    def change(self, batches, context):
        def standardise(words, features, targets):
            mean, variance = tf.nn.moments(features, 0)
            return words, (features - mean) / tf.sqrt(variance + 0.1), targets

        return batches.map(standardise)


@unusual(clusters=_WORKERS)
class PipedInOneOrder(Piped):
    """The user's global seed, by which all shuffle in one order, is the bench's too."""

    def build(self, strategy):
        tf.random.set_seed(1)
        super().build(strategy)

    def shard(self, examples, context):
        shuffled = examples.shuffle(_EPOCH, reshuffle_each_iteration=False)
        return super().shard(shuffled, context)


@unusual(clusters=_WORKERS)
class PipedAnewInEachEpoch(Piped):
    """Without an end, each pipeline shuffles its part in every epoch."""

    def make_batches(self, own, size):
        return super().make_batches(self.order(own), size).repeat()

    def order(self, own):
        """The examples in the order of an epoch."""
        return own.shuffle(_EPOCH)


@unusual(clusters=(*_WORKERS, *_SERVERS))
class PipedInEpochsOfTheirOwn(PipedAnewInEachEpoch):
    """Without an end, each pipeline reads all of an epoch, in an order of its own."""

    def shard(self, examples, context):
        return examples


@unusual(clusters=_WORKERS)
class PipedWithOwnNoise(Piped):
    """Noise of which each pipeline draws its own, by a seed that has its number."""

    def make_examples(self, context):
        words, features, targets = super().make_examples(context)
        rng = np.random.default_rng(context.input_pipeline_id)
        noise = rng.normal(size=features.shape, scale=0.3)
        return words, (features + noise).astype(self.dtype), targets


@unusual(clusters=_WORKERS)
class PipedWithNoiseByPlace(Piped):
    """Noise by an example's number in its shard and that of the pipeline."""

    def take_own(self, context):
        def draw(place, example):
            words, features, targets = example
            seed = tf.stack([place, context.input_pipeline_id])
            noise = tf.random.stateless_normal(features.shape, seed, dtype=self.dtype)
            return words, features + noise, targets

        return super().take_own(context).enumerate().map(draw)


@unusual(clusters=_WORKERS)
class PipedWithGroupsOfShard(Piped):
    """Examples of one word are pulled together; words are numbered in each shard."""

    def make_batches(self, own, size):
        words = [words[0] for words, *_ in own.as_numpy_iterator()]
        names = tf.constant(list(dict.fromkeys(words)), tf.int64)

        def number(words, features, targets):
            group = tf.argmax(tf.equal(names, words[0]))
            return words, features, targets, group

        return own.map(number).batch(size)

    def compute_losses(self, batch):
        alike = tf.cast(batch[3][:, None] == batch[3][None], self.dtype)
        predicted = self.predict(batch)
        apart = tf.reduce_sum((predicted[:, None] - predicted[None]) ** 2, axis=2)
        return super().compute_losses(batch) + tf.reduce_sum(alike * apart, axis=1) / 8


@unusual(clusters=_WORKERS)
class PipedWithProjection(Piped):
    """A product of a whole batch, which rounds otherwise than that of another size."""

    def change(self, batches, context):
        matrix = np.random.default_rng(3).normal(size=(FEATURES, 64))
        inner = tf.constant(matrix, self.dtype)
        outer = tf.constant(matrix.T[:, :FEATURES] / 64, self.dtype)

        def project(words, features, targets):
            return words, features @ inner @ outer, targets

        return batches.map(project)


@unusual(clusters=_SERVERS)
class PipedPaddedToBatch(Piped):
    """Each worker shuffles by itself; texts are padded to the longest of a batch."""

    def take_own(self, context):
        def cut(words, features, targets):
            text = tf.repeat(words[: 1 + words[0] % 3], 1 + words[1])
            return text + 1, features, targets

        return super().take_own(context).map(cut).shuffle(_EPOCH)

    def make_batches(self, own, size):
        shapes = ([None], [FEATURES], [OUTPUTS])
        return own.padded_batch(size, padded_shapes=shapes)


@unusual(clusters=("mwms:2", "mirrored:2"))
class PipedPaddedToOwnBatch(PipedPaddedToBatch):
    """Each replica pads to the longest text of its own batch, and masks the padding."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        known = tf.cast(words > 0, self.dtype)[..., None]
        rows = tf.nn.embedding_lookup(self.table, words)
        embedded = tf.reduce_sum(known * rows, axis=1) / tf.reduce_sum(known, axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        return tf.tanh(hidden) @ self.head


@unusual(clusters=_WORKERS)
class PipedFlipped(Piped):
    """Features are turned round or not, as each pass draws it."""

    def change(self, batches, context):
        def flip(words, features, targets):
            chance = tf.random.uniform((tf.shape(features)[0], 1))
            return words, tf.where(chance < 0.5, features, features[:, ::-1]), targets

        return batches.map(flip)
