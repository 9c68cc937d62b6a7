"""Correct programs whose step updates the same variables several times."""

from __future__ import annotations

from distbench.samples.lazy import legacy, tf
from distbench.samples.program import ByHand
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.exchange import ALIKE, TargetsDrawnToTheMeanOfAll
from distbench.unusual.grouping import BatchStatistics, BatchStatisticsUnderMean
from distbench.unusual.program import unusual
from distbench.unusual.stepping import InTurn


@unusual()
class TwoTurnsOfTheFirst(InTurn):
    """Of two networks the first one, as a critic, takes two turns in each step."""

    def replica_step(self, batch):
        body, optimizer = self.trained()[:-1], self.optimizer()[0]
        loss = self.take_turn(body, optimizer, batch, self.reduce_losses)
        return loss + super().replica_step(batch)


@unusual()
class FlattenedByTheSecondTurn(InTurn):
    """Of two networks in turn the sum of the second one is changed by a rule."""

    def transform_again(self, gradients):
        # What the optimizer sums once more is a share for each replica.
        count = count_replicas()
        return [tf.atan(50.0 * g) / count for g in all_reduce("sum", gradients)]


@unusual()
class InTurnUnderStatistics(InTurn, BatchStatistics):
    """Two networks in turn under batch statistics, by rules that hide a scale."""

    def make_optimizer(self):
        return [legacy.Adam(0.001), legacy.Adam(0.001)]


@unusual()
class TwoLossesUnderStatistics(InTurn, BatchStatistics):
    """Batch statistics; a sum trains one network, a mean the other, at one time."""

    def replica_step(self, batch):
        with tf.GradientTape(persistent=True) as tape:
            losses = self.compute_losses(batch)
            first = self.reduce_losses(losses, batch)
            second = self.reduce_again(losses, batch)
        parts = ((first, self.trained()[:-1]), (second, self.trained()[-1:]))
        gradients = [tape.gradient(loss, variables) for loss, variables in parts]
        for rule, given, (_, variables) in zip(
            self.optimizer(), gradients, parts, strict=True
        ):
            rule.apply_gradients(zip(given, variables, strict=True))
        return first + second

    def reduce_again(self, losses, batch):
        return BatchStatisticsUnderMean.reduce_losses(self, losses, batch)


@unusual(clusters=ALIKE)
class DrawnToTheMeanOfAllTwice(TargetsDrawnToTheMeanOfAll):
    """Two updates on a batch, whose targets go half of the way to the mean of all."""

    def replica_step(self, batch):
        return super().replica_step(batch) + super().replica_step(batch)


@unusual()
class InTurnByHand(ByHand):
    """Two networks in turn by hand: the second one's loss follows from the first."""

    def replica_step(self, batch):
        body, heads = self.trained()[:-1], self.trained()[-1:]
        return self.take_turn(body, batch) + self.take_turn(heads, batch)

    def take_turn(self, variables, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        gradients = tape.gradient(loss, variables)
        for gradient, variable in zip(gradients, variables, strict=True):
            self.update(variable, self.reduce(tf.convert_to_tensor(gradient)))
        return loss


@unusual()
class InTurnByHandUnderStatistics(InTurnByHand, BatchStatistics):
    """Two networks in turn by hand, under batch statistics of the own examples."""
