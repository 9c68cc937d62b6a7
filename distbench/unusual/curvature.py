"""Correct steps by hand that are made of more of the examples than one gradient."""

from __future__ import annotations

from distbench.samples.curvature import AlongSigns
from distbench.samples.lazy import tf
from distbench.samples.program import AdamByHand, MomentumByHand
from distbench.samples.replicas import all_reduce, update
from distbench.unusual.climbing import ClimbsOnValues
from distbench.unusual.program import unusual


@unusual()
class DividedByCurvature(AdamByHand, AlongSigns):
    """A momentum is divided by a moving curvature along random signs, as in Sophia."""

    def replica_step(self, batch):
        loss, gradients, own = self.curve(batch)
        curvatures = self.join(own)
        for place, total in enumerate(self.reduce_all(gradients)):
            moment, square = self.moments[place], self.squares[place]
            update(moment, self.move, total)
            update(square, self.move, curvatures[place])
            below = tf.maximum(0.1 * tf.abs(square), 1e-3)
            step = tf.clip_by_value(moment / below, -1.0, 1.0)
            self.update(self.trained()[place], step)
        return loss

    def join(self, curvatures):
        """The curvature of the whole loss, of each replica's share of it."""
        return all_reduce("sum", curvatures)


@unusual()
class CorrectedByLastValues(MomentumByHand, ClimbsOnValues):
    """What a momentum takes is corrected by a gradient at the last values (MARS)."""

    longest = 1.0

    def build(self, strategy):
        super().build(strategy)
        self.last = [
            tf.Variable(v, trainable=False, name=f"last{i}")
            for i, v in enumerate(self.trained())
        ]

    def variables(self):
        return [*super().variables(), *self.last]

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        found = tape.gradient(loss, self.trained())
        now = [tf.convert_to_tensor(gradient) for gradient in found]
        _, before = self.differentiate(list(map(tf.identity, self.last)), batch)
        for place, change in enumerate(self.correct(now, before)):
            variable, buffer = self.trained()[place], self.buffers[place]
            update(self.last[place], self.hold, tf.identity(variable))
            update(buffer, self.move, change)
            self.update(variable, tf.identity(buffer))
        return loss

    def correct(self, now, before):
        """What the momentum takes, of the replica's gradients here and there."""
        now, before = all_reduce("sum", now), all_reduce("sum", before)
        return [self.limit(g + 0.5 * (g - b)) for g, b in zip(now, before, strict=True)]

    def limit(self, gradient):
        """No longer than a norm, which some are."""
        return tf.clip_by_norm(gradient, self.longest)

    def hold(self, copy, value):
        """One copy's last values."""
        copy.assign(value)
