"""Correct steps that a program makes by hand, with rules of other shapes."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import AdamByHand, ByHand, MomentumByHand, PartlyByHand
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    make_zeros,
    update,
)
from distbench.unusual.grouping import BatchStatistics
from distbench.unusual.program import unusual
from distbench.unusual.stepping import CountedMicroSteps


@unusual()
class FactoredByHand(ByHand):
    """Mean squares of a kernel's rows and columns divide its step, as in Adafactor."""

    def build(self, strategy):
        super().build(strategy)
        rows, columns = self.second.shape
        self.rows = tf.Variable(tf.ones(rows), trainable=False, name="rows")
        self.columns = tf.Variable(tf.ones(columns), trainable=False, name="columns")

    def variables(self):
        return [*self.trained(), self.rows, self.columns]

    def apply(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = [self.reduce(gradient) for gradient in own]
        squares = self.square(own[2], total[2])
        update(self.rows, self.move, tf.reduce_mean(squares, axis=1))
        update(self.columns, self.move, tf.reduce_mean(squares, axis=0))
        rows, columns = tf.identity(self.rows), tf.identity(self.columns)
        below = rows[:, tf.newaxis] * columns / tf.reduce_mean(rows)
        total[2] /= tf.sqrt(below)
        for variable, gradient in zip(self.trained(), total, strict=True):
            self.update(variable, gradient)

    def square(self, own, total):
        """The squares that are kept: of the reduced gradient."""
        del own
        return total**2

    def move(self, copy, taken):
        """One copy's mean squares."""
        copy.assign(0.9 * copy + 0.1 * taken)


@unusual()
class SignsByHand(ByHand):
    """Every step goes by the sign of the sum."""

    def apply(self, gradients):
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            self.update(variable, self.choose(tf.convert_to_tensor(gradient)))

    def choose(self, gradient):
        """The sign of the reduced gradient."""
        return tf.sign(self.reduce(gradient))


@unusual(clusters=("mirrored:3", "mwms:2"))
class MomentumByHandUnderStatistics(BatchStatistics, MomentumByHand):
    """Batch statistics, a momentum by hand, and nobody sees what it takes."""


@unusual()
class OptimizerBesideHand(PartlyByHand):
    """An optimizer takes some variables, and the user sums and updates the others."""


@unusual(clusters=("mirrored:3", "mwms:2"))
class OptimizerBesideHandUnderStatistics(BatchStatistics, PartlyByHand):
    """An optimizer and updates by hand under batch statistics of the own examples."""


@unusual()
class CountedMicroStepsByHand(MomentumByHand, CountedMicroSteps):
    """A momentum by hand of three parts of the shard, over what counts of all."""


@unusual()
class TasksProjectedByHand(MomentumByHand):
    """Gradients of two tasks are summed, and projected where they are at odds."""

    def replica_step(self, batch):
        with tf.GradientTape(persistent=True) as tape:
            squares = (self.predict(batch) - batch[2]) ** 2
            tasks = [
                tf.reduce_sum(squares[:, part]) / self.examples
                for part in (slice(1), slice(1, None))
            ]
        totals = [
            [
                self.reduce(tf.convert_to_tensor(gradient))
                for gradient in tape.gradient(task, self.trained())
            ]
            for task in tasks
        ]
        self.apply(self.project(*totals))
        return self.report(sum(tasks))

    def project(self, first, second):
        """Their sum, each without the part that is opposite to the other."""
        along = tf.add_n(
            [tf.reduce_sum(a * b) for a, b in zip(first, second, strict=True)]
        )
        against = tf.minimum(along, 0.0)
        sizes = [tf.linalg.global_norm(total) ** 2 for total in (first, second)]
        return [
            (1 - against / sizes[0]) * a + (1 - against / sizes[1]) * b
            for a, b in zip(first, second, strict=True)
        ]

    def apply(self, gradients):
        for place, total in enumerate(gradients):
            update(self.buffers[place], self.move, total)
            self.update(self.trained()[place], tf.identity(self.buffers[place]))


@unusual()
class TrustRatioByHand(AdamByHand):
    """Each variable moves by a share of its own norm, as under LAMB."""

    def update(self, variable, gradient):
        ratio = tf.norm(variable) / (self.measure(gradient) + 1e-3)
        super().update(variable, ratio * gradient)

    def measure(self, step):
        """The size of a step, by which it is divided."""
        return tf.norm(step)


@unusual()
class TrustRatioBehindMomentum(MomentumByHand):
    """A momentum takes the sum times a trust ratio, as under LARS."""

    def take(self, place, gradient):
        own, variable = tf.convert_to_tensor(gradient), self.trained()[place]
        total = self.reduce(own)
        ratio = tf.norm(variable) / (self.measure(own, total) + 1e-3)
        update(self.buffers[place], self.move, 0.1 * ratio * total)
        self.update(variable, tf.identity(self.buffers[place]))

    def measure(self, own, total):
        """The size of a sum, by which it is divided."""
        del own
        return tf.norm(total)


@unusual()
class DecayInTrustRatio(AdamByHand):
    """Moments and decay together are as long as a share of the variable: LAMB."""

    def update(self, variable, gradient):
        way = gradient + self.find_decay() * variable
        ratio = tf.norm(variable) / (tf.norm(way) + 1e-6)
        super().update(variable, ratio * way)

    def find_decay(self):
        """The share of the variable that is added to its step."""
        return 0.3


@unusual()
class ClippedByMeanOfNorms(MomentumByHand):
    """The sum is clipped by a moving mean of its norms before a momentum takes it."""

    def build(self, strategy):
        super().build(strategy)
        self.norms = tf.Variable(1.0, trainable=False, name="norms")

    def variables(self):
        return [*super().variables(), self.norms]

    def apply(self, gradients):
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = [self.reduce(gradient) for gradient in own]
        update(self.norms, self.follow, self.measure(own, total))
        size = tf.linalg.global_norm(total)
        share = tf.minimum(1.0, tf.identity(self.norms) / size)
        for place, variable in enumerate(self.trained()):
            update(self.buffers[place], self.move, share * total[place])
            self.update(variable, tf.identity(self.buffers[place]))

    def measure(self, own, total):
        """The norm that the mean takes."""
        del own
        return tf.linalg.global_norm(total)

    def follow(self, copy, norm):
        """One copy's mean of norms."""
        copy.assign(0.8 * copy + 0.2 * norm)


@unusual()
class SignsBesideDecayByHand(MomentumByHand):
    """A step is the sign of momentum and sum, as under Lion, and a decay."""

    def build(self, strategy):
        super().build(strategy)
        self.buffers = [
            tf.Variable(0.1 * tf.identity(v), trainable=False, name=buffer.name[:-2])
            for v, buffer in zip(self.trained(), self.buffers, strict=True)
        ]

    def take(self, place, gradient):
        gradient, buffer = tf.convert_to_tensor(gradient), self.buffers[place]
        chosen = self.choose(0.9 * tf.identity(buffer), gradient)
        update(buffer, self.move, self.reduce(gradient))
        variable = self.trained()[place]
        self.update(variable, chosen + 0.1 * tf.identity(variable))

    def choose(self, moved, gradient):
        """The way to go: 1 or -1 for each element."""
        return tf.sign(moved + self.reduce(gradient))


@unusual(clusters=("mirrored:3", "mwms:2"))
class RootsByHand(MomentumByHand):
    """Mean squares alone divide the sum, as the first replica has them."""

    def build(self, strategy):
        super().build(strategy)
        self.buffers = make_zeros(self.trained(), "root", "ONLY_FIRST_REPLICA")

    def take(self, place, gradient):
        own, buffer = tf.convert_to_tensor(gradient), self.buffers[place]
        total = self.reduce(own)
        buffer.assign(self.keep(buffer, self.choose(own, total) ** 2))
        below = tf.sqrt(tf.identity(buffer)) + 1e-3
        self.update(self.trained()[place], total / below)

    def choose(self, own, total):
        """The gradient whose square is kept: the reduced one."""
        del own
        return total

    def keep(self, buffer, square):
        """What becomes of a mean square."""
        return 0.9 * buffer + 0.1 * square


@unusual()
class SquaresAboutMeanByHand(AdamByHand):
    """A second moment is that of the distance from a mean, as under AdaBelief."""

    mean = 0.25

    def take_second(self, own, total):
        del own
        return (total - self.mean) ** 2


@unusual()
class SquaresAboutMomentByHand(AdamByHand):
    """A second moment is that of the distance from the first one, as in AdaBelief."""

    def take_second(self, own, total):
        del own
        return (total - self.moved) ** 2


@unusual(clusters=("mirrored:3", "mwms:2"))
class AveragedByHand(MomentumByHand):
    """Losses are N times their shares, gradients are averaged, and nobody says so."""

    loss_reduction = None

    def reduce_losses(self, losses, batch):
        return count_replicas() * super().reduce_losses(losses, batch)

    def reduce(self, gradient):
        return all_reduce("mean", gradient)
