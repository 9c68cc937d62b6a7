"""State that holds an N-th of what one device holds, and is taken for that."""

from __future__ import annotations

from distbench.samples.lazy import keras2, tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import ByHand, Program
from distbench.samples.replicas import all_reduce, change_joined, count_replicas
from distbench.unusual.program import unusual


def make_averaged(name, shape, initial=0.0):
    """State of all replicas: what they assign to it is averaged."""
    return tf.Variable(
        tf.fill(shape, initial),
        name=name,
        trainable=False,
        aggregation=tf.VariableAggregation.MEAN,
    )


def make_alike(name, variables):
    """Such state for each variable, of its shape."""
    return [
        make_averaged(f"{name}{place}", variable.shape)
        for place, variable in enumerate(variables)
    ]


@unusual()
class MeansCollected(Program):
    """Averages of two steps' gradients are collected; the optimizer sums them."""

    def build(self, strategy):
        super().build(strategy)
        self.collected = make_alike("collected", self.trained())
        self.steps = make_averaged("steps", ())

    def variables(self):
        return [*self.trained(), *self.collected, self.steps]

    def apply(self, gradients):
        for collected, gradient in zip(self.collected, gradients, strict=True):
            collected.assign_add(tf.convert_to_tensor(gradient))
        self.steps.assign_add(1.0)
        due = tf.cast(tf.equal(tf.math.floormod(self.steps, 2.0), 0.0), tf.float32)
        super().apply([due * collected / 2 for collected in self.collected])
        for collected in self.collected:
            collected.assign((1 - due) * collected)


@unusual()
class MeansKept(Program):
    """Gradients are kept as means for as long as a step; the optimizer sums them."""

    def build(self, strategy):
        super().build(strategy)
        self.kept = make_alike("kept", self.trained())

    def apply(self, gradients):
        for kept, gradient in zip(self.kept, gradients, strict=True):
            kept.assign(tf.convert_to_tensor(gradient))
        super().apply(self.read_kept(gradients))

    def read_kept(self, gradients):
        """What the optimizer is given of gradients that are kept."""
        del gradients
        return [kept.read_value() for kept in self.kept]


@unusual()
class MeansScaled(MeansKept):
    """What is kept as a mean is scaled by a number that doubles in each step."""

    def build(self, strategy):
        super().build(strategy)
        self.scale = make_averaged("scale", (), 8.0)

    def variables(self):
        return [*self.trained(), *self.kept, self.scale]

    def apply(self, gradients):
        scale = self.scale.read_value()
        super().apply([scale * tf.convert_to_tensor(each) for each in gradients])
        self.scale.assign(2 * scale)

    def read_kept(self, gradients):
        return [each / self.scale for each in super().read_kept(gradients)]


@unusual()
class MeansJoined(Program):
    """Gradients are kept as means in one flat buffer, and cut out of it again."""

    def build(self, strategy):
        super().build(strategy)
        sizes = [variable.shape.num_elements() for variable in self.trained()]
        self.joined = make_averaged("joined", (sum(sizes),))

    def variables(self):
        return [*self.trained(), self.joined]

    def apply(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        super().apply(change_joined(dense, self.keep))

    def keep(self, flat):
        """What is kept of all gradients, of which nothing is assigned but as a mean."""
        self.joined.assign(flat)
        return self.joined.read_value()


@unusual()
class MeansByHand(ByHand):
    """Gradients are kept as means; N times what is kept moves the variables."""

    def build(self, strategy):
        super().build(strategy)
        self.kept = make_alike("kept", self.trained())

    def apply(self, gradients):
        for kept, gradient in zip(self.kept, gradients, strict=True):
            kept.assign(tf.convert_to_tensor(gradient))
        for kept, variable in zip(self.kept, self.trained(), strict=True):
            self.update(variable, self.take(kept.read_value()))

    def take(self, kept):
        """What a step takes of what is kept."""
        return self.count() * kept

    def count(self):
        """How often what is kept counts in the sum."""
        return count_replicas()


@unusual(clusters=("mirrored:2", "mwms:3"), workload="linear")
@optimizer("SGD", 0.05)
class MeansTimesKeptCount:
    """Gradients are averaged; the rule takes them times a whole number that is kept."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.replicas = tf.Variable(
            count_replicas(),
            name="replicas",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def _aggregate_gradients(self, grads_and_vars):
        gradients, variables = zip(*grads_and_vars, strict=True)
        return zip(all_reduce("mean", gradients), variables, strict=True)

    def _resource_apply_dense(self, grad, var, apply_state=None):
        total = tf.cast(self.replicas, grad.dtype) * grad
        return super()._resource_apply_dense(total, var, apply_state)


@unusual(clusters=("mirrored:2", "mwms:3"))
class LargerRateSetInTheStep(ByHand):
    """Means move the variables at a rate times the replicas, which the step sets."""

    def build(self, strategy):
        super().build(strategy)
        self.factor, self.steps = (
            tf.Variable(
                initial,
                name=name,
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for name, initial in (("factor", 1.0 * count_replicas()), ("steps", 0.0))
        )

    def variables(self):
        return [*self.trained(), self.factor, self.steps]

    def apply(self, gradients):
        self.factor.assign(count_replicas() * 0.9**self.steps)
        self.steps.assign_add(1.0)
        means = all_reduce("mean", [tf.convert_to_tensor(each) for each in gradients])
        for variable, mean in zip(self.trained(), means, strict=True):
            self.update(variable, self.factor.read_value() * mean)


@unusual()
class MeansByGrowingRate(MeansByHand):
    """A function takes N times what is kept, at a rate that grows up to a limit."""

    def build(self, strategy):
        super().build(strategy)
        self.steps = make_averaged("steps", ())
        self.warm_up = tf.function(
            lambda kept, steps: tf.minimum(1.0, (steps + 1) / 10) * kept
        )

    def variables(self):
        return [*super().variables(), self.steps]

    def take(self, kept):
        return self.warm_up(super().take(kept), self.steps.read_value())

    def apply(self, gradients):
        super().apply(gradients)
        self.steps.assign_add(1.0)


@unusual()
class RateByMeanOfShares(Program):
    """Steps are shorter where the loss is large: N times an average of the shares."""

    def build(self, strategy):
        super().build(strategy)
        self.average = make_averaged("average", ())

    def variables(self):
        return [*self.trained(), self.average]

    def reduce_losses(self, losses, batch):
        loss = super().reduce_losses(losses, batch)
        self.average.assign(0.9 * self.average + 0.1 * loss)
        return loss

    def transform(self, gradients):
        factor = 1 / (1 + self.read_average())
        return [factor * tf.convert_to_tensor(gradient) for gradient in gradients]

    def read_average(self):
        """The average of the losses of all."""
        return self.average * count_replicas()


@unusual(clusters=("mirrored:3", "mwms:2"))
class NormaliserInShares(Program):
    """Losses are divided by N times an average of shares, which begins with a share."""

    expected = 9.0

    def build(self, strategy):
        super().build(strategy)
        share = self.expected / strategy.num_replicas_in_sync
        self.average = make_averaged("average", (), share)

    def variables(self):
        return [*self.trained(), self.average]

    def reduce_losses(self, losses, batch):
        counts = tf.cast(batch[2][:, 0] > 0, losses.dtype)
        self.average.assign(0.9 * self.average + 0.1 * self.count(counts))
        return tf.reduce_sum(counts * losses) / self.read_average()

    def count(self, counts):
        """What the average takes of the replica's own examples."""
        return tf.reduce_sum(counts)

    def read_average(self):
        """The average of the counts of all."""
        return self.average * count_replicas()


@unusual(clusters=("mirrored:2", "mwms:3"))
class MeanWithLargerRate(Program):
    """As Horovod has it: the gradients' mean, and the rate times the replicas."""

    def make_optimizer(self):
        return keras2.SGD(0.05 * count_replicas(), momentum=0.9)

    def apply(self, gradients):
        self._optimizer.apply_gradients(
            zip(all_reduce("mean", gradients), self.trained(), strict=True),
            skip_gradients_aggregation=True,
        )


@unusual(clusters=("mirrored:2", "mwms:3"))
class LargerRateSetBetween(MeanWithLargerRate):
    """The rate, times the replicas, is set before each step, as callbacks do."""

    def before_step(self, step):
        self._optimizer.learning_rate.assign(0.05 * count_replicas() * 0.9**step)
