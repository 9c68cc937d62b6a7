"""Train programs that bring an input pipeline; tests check them by their targets."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = 24
GLOBAL_BATCH = 8


def make_examples() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of an epoch."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(EXAMPLES, 3)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


class Trained:
    """A layer and SGD; the loss is the replica's share of the mean."""

    loss_reduction = "sum"

    def build(self, strategy: Any) -> None:
        import tensorflow as tf
        import tf_keras

        del strategy
        self.weights = tf.Variable(tf.zeros((3, 1)), name="dense/kernel")
        self.sgd = tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9)

    def replica_step(self, batch: Any) -> Any:
        import tensorflow as tf

        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.average(tf.reduce_sum((x @ self.weights - y) ** 2, axis=1))
        gradient = tape.gradient(loss, self.weights)
        self.sgd.apply_gradients([(gradient, self.weights)])
        return loss

    def average(self, losses: Any) -> Any:
        """The replica's share of the mean."""
        import tensorflow as tf

        return tf.reduce_sum(losses) / GLOBAL_BATCH

    def variables(self) -> Any:
        return [self.weights]

    def optimizer(self) -> Any:
        return self.sgd


class Sharded(Trained):
    """Each pipeline takes every n-th example, each replica its part of the batch."""

    def dataset_fn(self, context: Any) -> Any:
        import tensorflow as tf

        examples = tf.data.Dataset.from_tensor_slices(make_examples())
        mine = self.order(examples, context)
        return mine.batch(context.get_per_replica_batch_size(GLOBAL_BATCH))

    def order(self, examples: Any, context: Any) -> Any:
        """The examples of a pipeline, one after the other."""
        return examples.shard(context.num_input_pipelines, context.input_pipeline_id)


class Remainder(Trained):
    """The last of five batches has five examples; each example weighs the same."""

    examples = 37

    def dataset(self) -> Any:
        import tensorflow as tf

        x, y = (np.concatenate([a, 2 * a])[: self.examples] for a in make_examples())
        return tf.data.Dataset.from_tensor_slices((x, y)).batch(GLOBAL_BATCH)


class RemainderOfCounted(Remainder):
    """The mean over the examples that all replicas have in a step."""

    def average(self, losses: Any) -> Any:
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        count = tf.cast(tf.shape(losses)[0], tf.float32)
        examples = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
        return tf.reduce_sum(losses) / examples


class RemainderOfMeans(Remainder):
    """The mean over the own shard, divided by N: right as long as shards are even."""

    def average(self, losses: Any) -> Any:
        import tensorflow as tf

        n = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.reduce_mean(losses) / n


class LoneRemainder(Remainder):
    """The last batch has one example, which one replica gets."""

    examples = 33


class LoneRemainderOfMeans(RemainderOfMeans):
    """Means over the own shards, of which some hold no example of the last batch."""

    examples = 33


class Shuffled(Sharded):
    """Shuffled in another order by every pipeline: whatever one device reads first."""

    def order(self, examples: Any, context: Any) -> Any:
        mine = super().order(examples, context)
        return mine.shuffle(EXAMPLES, seed=7 + context.input_pipeline_id)


class Endless(Sharded):
    """Each pipeline has a share of its own, and repeats it for ever."""

    def dataset_fn(self, context: Any) -> Any:
        return super().dataset_fn(context).repeat()


class NotSharded(Sharded):
    """Every pipeline reads everything."""

    def order(self, examples: Any, context: Any) -> Any:
        return examples


class EndlesslyNotSharded(NotSharded):
    """Every pipeline reads everything, and repeats it for ever."""

    def dataset_fn(self, context: Any) -> Any:
        return super().dataset_fn(context).repeat()


class OneShardTooMany(Sharded):
    """A shard for a worker that does not exist."""

    def order(self, examples: Any, context: Any) -> Any:
        pipelines = context.num_input_pipelines
        shards = pipelines + 1 if pipelines > 1 else 1
        return examples.shard(shards, context.input_pipeline_id)


class EndlesslyOneTooMany(OneShardTooMany):
    """A shard for a worker that does not exist, of a data set without an end."""

    def dataset_fn(self, context: Any) -> Any:
        return super().dataset_fn(context).repeat()


class ScaledByPipeline(Sharded):
    """Targets are multiplied by the pipeline's number and one."""

    def dataset_fn(self, context: Any) -> Any:
        times = 1.0 + context.input_pipeline_id
        return super().dataset_fn(context).map(lambda x, y: (x, times * y))


class EndlesslyScaledByPipeline(ScaledByPipeline):
    """The same without an end."""

    def dataset_fn(self, context: Any) -> Any:
        return super().dataset_fn(context).repeat()


class NoisyByPlace(Sharded):
    """Noise by an example's number in its shard: on all workers the same."""

    def order(self, examples: Any, context: Any) -> Any:
        import tensorflow as tf

        def draw(place: Any, example: Any) -> Any:
            x, y = example
            return x + tf.random.stateless_normal(x.shape, tf.stack([place, 0])), y

        return super().order(examples, context).enumerate().map(draw)


class TakenAfterShard(Sharded):
    """Two thirds of the examples, of those of each pipeline."""

    def order(self, examples: Any, context: Any) -> Any:
        return super().order(examples, context).take(EXAMPLES * 2 // 3)


class WholeBatchesForAll(Sharded):
    """Every pipeline makes batches of the global size."""

    def dataset_fn(self, context: Any) -> Any:
        return super().dataset_fn(context).unbatch().batch(GLOBAL_BATCH)


class EndlessUnevenParts(Sharded):
    """Two thirds of the examples are for the first pipeline, without an end."""

    def order(self, examples: Any, context: Any) -> Any:
        if context.num_input_pipelines == 1:
            return examples
        part = EXAMPLES * 2 // 3
        first = context.input_pipeline_id == 0
        return examples.take(part) if first else examples.skip(part)

    def dataset_fn(self, context: Any) -> Any:
        return super().dataset_fn(context).repeat()


class OfOtherAxes(Sharded):
    """The second pipeline gives each target as a number."""

    def dataset_fn(self, context: Any) -> Any:
        batches = super().dataset_fn(context)
        if context.input_pipeline_id:
            return batches.map(lambda x, y: (x, y[:, 0]))
        return batches


class ShuffledBeforeSharded(Sharded):
    """Every process shuffles in an order of its own, and then takes its part."""

    seed: int | None = None

    def order(self, examples: Any, context: Any) -> Any:
        return super().order(examples.shuffle(EXAMPLES, seed=self.seed), context)


class SeededBeforeSharded(ShuffledBeforeSharded):
    """All shuffle in one order, by TensorFlow's global seed, then take their parts.

    The seed is the number that the bench's own has by default.
    """

    seed = 3

    def build(self, strategy: Any) -> None:
        import tensorflow as tf

        tf.random.set_seed(1)
        super().build(strategy)


class SeededByItself(ShuffledBeforeSharded):
    """All shuffle by an op's own seed, where nobody has set the global one."""

    seed = 3


class Distributed(Trained):
    """A data set of global batches, which the strategy shards by a policy."""

    policy = "DATA"

    def make_dataset(self) -> Any:
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices(make_examples())

    def dataset(self) -> Any:
        import tensorflow as tf

        options = tf.data.Options()
        policies = tf.data.experimental.AutoShardPolicy
        options.experimental_distribute.auto_shard_policy = policies[self.policy]
        return self.make_dataset().batch(GLOBAL_BATCH).with_options(options)


class SwitchedOff(Distributed):
    """Nobody shards: with the policy OFF every worker gets the whole batches."""

    policy = "OFF"


class InPlaceOfInherited(SwitchedOff, Sharded):
    """Says that it has no `dataset_fn`, as a class says that it has no hash."""

    dataset_fn = None  # type: ignore[assignment]


class BesideBatches(NotSharded):
    """A pipeline of which nothing is known: there is `data` as well."""

    def data(self, step: int) -> Any:
        """The same examples at each step."""
        del step
        return make_examples()

    def average(self, losses: Any) -> Any:
        import tensorflow as tf

        return tf.reduce_sum(losses) / EXAMPLES


class FromFiles(Distributed):
    """Two files of text, one for each worker."""

    policy = "FILE"
    lengths: tuple[int, ...] = (12, 12)

    def make_dataset(self) -> Any:
        import tensorflow as tf

        names = write_files(self.lengths)

        def parse(line: Any) -> Any:
            x = tf.stack(tf.io.decode_csv(line, [0.0] * 3))
            return x, tf.reduce_sum(x, keepdims=True)

        return tf.data.TextLineDataset(names).map(parse)


class FromUnevenFiles(FromFiles):
    """More files than workers, of other lengths: an epoch ends at other times."""

    lengths = (7, 2, 5, 1, 9)


class FromTooFewFiles(FromFiles):
    """Two files, of which a third worker gets none."""

    lengths = (14, 10)


class ShardedByHand(FromUnevenFiles):
    """The program takes its worker's lines, and nobody else shards."""

    policy = "OFF"

    def make_dataset(self) -> Any:
        lines = super().make_dataset()
        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        workers = len(config.get("cluster", {}).get("worker", [0]))
        index = config.get("task", {}).get("index", 0)
        return lines.shard(workers, index)


class ShardedAgain(ShardedByHand):
    """The program takes its worker's lines, and the policy takes files of these."""

    policy = "FILE"


def write_files(lengths: tuple[int, ...]) -> list[str]:
    """The examples in files of so many lines; returns their names."""
    kind = "-".join(map(str, lengths))
    folder = Path(tempfile.gettempdir()) / f"distbench-pipelines-{kind}"
    folder.mkdir(exist_ok=True)
    names = []
    ends = np.cumsum(lengths)[:-1]
    for number, part in enumerate(np.split(make_examples()[0], ends)):
        path = folder / f"part-{number}.csv"
        if not path.exists():
            temporary = path.with_suffix(f".{os.getpid()}")
            np.savetxt(temporary, part, delimiter=",")
            temporary.replace(path)
        names.append(str(path))
    return names
