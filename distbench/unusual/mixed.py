"""Correct programs in mixed precision."""

from __future__ import annotations

from distbench.samples.lazy import legacy, tf
from distbench.samples.loss_scale import find_finite
from distbench.samples.mixed import (
    Decayed,
    LedByLoss,
    MixedProgram,
    Pulled,
    SkippedByHand,
    SummedByHand,
    clear_overflow,
)
from distbench.samples.program import Program
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    take_share,
    update,
)
from distbench.unusual.program import unusual


@unusual()
class LossScale(MixedProgram):
    """A layer in float16 under a loss scale."""


@unusual()
class OverflowOnOneReplica(MixedProgram):
    """One example overflows in float16: all replicas skip the step together."""

    def data(self, step):
        features, targets = super().data(step)
        if step == 1:
            targets[-1] = 1e30
        return features, targets


@unusual()
class BrainFloat(MixedProgram):
    """A layer in bfloat16, which needs no loss scale."""

    policy = "mixed_bfloat16"

    def make_optimizer(self):
        return legacy.Adam(0.01)

    def scale_loss(self, loss):
        return loss

    def unscale(self, gradients):
        return gradients


@unusual(clusters=("mirrored:2", "mwms:3", "mirrored:4"))
class BrainFloatCount(BrainFloat):
    """A layer in bfloat16, and a mean over examples that all replicas count."""

    def compute_loss(self, batch):
        features, targets = batch
        outputs = tf.cast(self.layer(features), "float32") @ self.head
        counted = tf.cast(features[:, :1] > 0, "float32")
        total = all_reduce("sum", tf.reduce_sum(counted))
        return tf.reduce_sum(counted * (outputs - targets) ** 2) / total


@unusual(clusters=("mirrored:2", "mwms:3"))
class BrainFloatStatistics(BrainFloat):
    """A layer in bfloat16, normalised by the statistics of the own examples."""

    def compute_loss(self, batch):
        features, targets = batch
        hidden = self.layer(features)
        mean, variance = tf.nn.moments(hidden, [0])
        hidden = (hidden - mean) / tf.sqrt(variance + 1e-3)
        outputs = tf.cast(hidden, "float32") @ self.head
        return tf.reduce_sum((outputs - targets) ** 2) / self.examples


@unusual(clusters=("mirrored:2", "mwms:3"))
class BrainFloatSharp(BrainFloat):
    """A layer in bfloat16, and the gradient where the sum of the first ones leads."""

    def replica_step(self, batch):
        variables = self.variables()
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        gradients = all_reduce("sum", tape.gradient(loss, variables))
        norm = tf.linalg.global_norm(gradients)
        climbs = [0.05 * gradient / norm for gradient in gradients]
        for variable, climb in zip(variables, climbs, strict=True):
            update(variable, lambda copy, climb: copy.assign_add(climb), climb)
        with tf.GradientTape() as tape:
            above = self.compute_loss(batch)
        gradients = tape.gradient(above, variables)
        for variable, climb in zip(variables, climbs, strict=True):
            update(variable, lambda copy, climb: copy.assign_sub(climb), climb)
        self.apply(gradients)
        return loss


@unusual(clusters=("mirrored:3", "mwms:2"))
class HalfLedByLoss(LedByLoss):
    """A layer in float16, and steps by hand whose rate follows the loss of all."""


@unusual()
class HalfSkippedByHand(SkippedByHand):
    """One example overflows in float16, and the sum over the replicas tells all."""


@unusual()
class HalfShareOverflows(Pulled):
    """A share overflows in float16, and not the whole batch: all replicas skip it."""

    def make_update(self, gradients):
        return clear_overflow(gradients)


@unusual()
class HalfCentredOverflows(HalfShareOverflows):
    """Targets are less their mean over all, so that shares alone do not overflow."""

    pulls = 130.0, -130.0

    def compute_loss(self, batch):
        features, targets = batch
        mean = all_reduce("sum", tf.reduce_sum(targets, axis=0)) / self.examples
        return super().compute_loss((features, targets - mean))


@unusual()
class HalfWholeOverflows(Pulled):
    """The whole batch overflows in float16, and no share: all replicas take it."""

    pulls = 60.0, 60.0

    def unscale(self, gradients):
        finite = self.ask(find_finite(gradients))
        sums = super().unscale(gradients)
        return [tf.where(finite, total, tf.zeros_like(total)) for total in sums]

    def ask(self, finite):
        """Whether no replica's gradients overflow."""
        return all_reduce("sum", tf.cast(finite, tf.int32)) == count_replicas()


@unusual()
class HalfTimesShareOverflows(Pulled):
    """N times a share overflows in float16, and not the share: all replicas skip it."""

    loss_reduction = "mean"
    pulls = 36.0, 36.0

    def compute_loss(self, batch):
        return count_replicas() * super().compute_loss(batch)

    def unscale(self, gradients):
        means = all_reduce("mean", gradients)
        return clear_overflow([mean / self.scale for mean in means])


@unusual()
class HalfTimesShareOverflowsFarther(HalfTimesShareOverflows):
    """The whole batch overflows too, in fewer numbers."""

    pulls = 56.0, 56.0


@unusual()
class HalfClippedSum(SummedByHand):
    """Layers in float16, and the norm of the sum is clipped before the optimizer."""

    def make_update(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.5)[0]


@unusual()
class HalfDecayed(Decayed):
    """A penalty that is less than what float16 may lose, shared by the replicas."""


@unusual(clusters=("mirrored:3", "mwms:2"))
class HalfSteppedByHand(SkippedByHand):
    """Layers in float16 and no optimizer: the program sums, and skips an overflow."""

    def make_optimizer(self):
        return None

    def apply(self, gradients):
        for variable, gradient in zip(self.trained(), gradients, strict=True):
            update(variable, lambda copy, g: copy.assign_sub(0.05 * g), gradient)


@unusual(clusters=("mirrored:3", "mwms:2"))
class HalfAveragedByHand(SummedByHand):
    """Layers in float16; N times the shares are averaged and stepped along by hand."""

    loss_reduction = "mean"

    def make_optimizer(self):
        return None

    def compute_loss(self, batch):
        return count_replicas() * super().compute_loss(batch)

    def unscale(self, gradients):
        return [mean / self.scale for mean in self.average(gradients)]

    def average(self, gradients):
        """Their mean over the replicas."""
        return all_reduce("mean", gradients)

    def apply(self, gradients):
        for variable, gradient in zip(self.trained(), gradients, strict=True):
            update(variable, lambda copy, g: copy.assign_sub(0.05 * g), gradient)


@unusual()
class MasterCopies(Program):
    """A model in float16 is set to copies in float32, which take the steps by hand."""

    def build(self, strategy):
        super().build(strategy)
        self.masters = super().trained()
        self.narrow = [
            tf.Variable(tf.cast(master, tf.float16), name=f"narrow{place}")
            for place, master in enumerate(self.masters)
        ]
        self.table, self.first, self.second, self.bias, self.head = self.narrow

    def make_optimizer(self):
        return None

    def variables(self):
        return [*self.narrow, *self.masters]

    def predict(self, batch):
        outputs = super().predict((batch[0], tf.cast(batch[1], tf.float16)))
        return tf.cast(outputs, self.dtype)

    def apply(self, gradients):
        wide = [tf.cast(tf.convert_to_tensor(g), self.dtype) for g in gradients]
        for place, gradient in enumerate(self.reduce(wide)):
            master = self.masters[place]
            update(master, lambda copy, value: copy.assign_sub(0.05 * value), gradient)
            update(self.narrow[place], self.follow, tf.identity(master))

    def reduce(self, gradients):
        """Sums over the replicas."""
        return list(all_reduce("sum", gradients))

    def follow(self, copy, value):
        """Round a master's value."""
        copy.assign(tf.cast(value, copy.dtype))


@unusual()
class MeanBesideSumInBfloat16(BrainFloat):
    """A layer in bfloat16; beside a sum a mean, of which each replica has its share."""

    def compute_loss(self, batch):
        features, targets = batch
        outputs = tf.cast(self.layer(features), "float32") @ self.head
        errors = tf.reduce_sum((outputs - targets) ** 2, axis=1)
        return tf.reduce_sum(errors) / self.examples + self.average(errors**2)

    def average(self, values):
        """Their mean over the global batch, or the replica's share of it."""
        return take_share(values, self.examples)


@unusual()
class FindsItsScale(MixedProgram):
    """The first loss scale is too large, so steps are left out until one is found."""

    scale = 2.0**24


@unusual()
class FindsItsScaleLate(MixedProgram):
    """The first loss scale is so large that many steps are left out."""

    scale = 2.0**30
