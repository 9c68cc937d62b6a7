"""Mistakes in steps that update the same variables several times."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import FIRST, HEAD, SECOND, TABLE, TRAINED, OwnMeans
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.exchange import ALIKE
from distbench.unusual.turns import (
    DrawnToTheMeanOfAllTwice,
    InTurnByHand,
    InTurnByHandUnderStatistics,
    InTurnUnderStatistics,
    TwoLossesUnderStatistics,
    TwoTurnsOfTheFirst,
)


@fault(
    "variable-not-reduced",
    "reduced_gradient",
    TRAINED[:-1],
    like="keras-team/keras#19308",
    clusters=WIDE,
)
class NobodySumsInTwoTurns(TwoTurnsOfTheFirst):
    """Nobody sums the gradients of a network that takes two turns in each step."""

    def take_turn(self, variables, optimizer, batch, reduce):
        if optimizer is self.optimizer()[1]:
            return super().take_turn(variables, optimizer, batch, reduce)
        with tf.GradientTape() as tape:
            loss = reduce(self.compute_losses(batch), batch)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True),
            experimental_aggregate_gradients=False,
        )
        return loss


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanOfSecondLossUnderStatistics(TwoLossesUnderStatistics):
    """Batch statistics; of two networks' losses the second is an own mean."""

    def reduce_again(self, losses, batch):
        del batch
        return tf.reduce_mean(losses)


@fault(
    "loss-not-scaled",
    "local_gradient",
    TRAINED[-1:],
    like="keras-team/keras#19891",
    clusters=WIDE,
)
class SecondTurnNotScaledUnderStatistics(InTurnUnderStatistics):
    """Of two networks in turn under batch statistics the second counts N times."""

    def take_turn(self, variables, optimizer, batch, reduce):
        if optimizer is self.optimizer()[0]:
            return super().take_turn(variables, optimizer, batch, reduce)
        with tf.GradientTape() as tape:
            loss = reduce(self.compute_losses(batch), batch)
            trains = loss * count_replicas()
        gradients = tape.gradient(trains, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=ALIKE)
class DrawnToMeanOfMeansTwice(DrawnToTheMeanOfAllTwice):
    """Two updates on a batch, whose targets go to the mean of the replicas' means."""

    def find_mean(self, targets):
        return all_reduce("mean", tf.reduce_mean(targets, axis=0))


@fault(
    "mean-instead-of-sum",
    "variable",
    (TABLE, FIRST, SECOND, HEAD),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class AveragedInTurnByHandUnderStatistics(InTurnByHandUnderStatistics):
    """Two networks in turn by hand, by the mean of shares, under batch statistics."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeansInTurnByHand(OwnMeans, InTurnByHand):
    """Two networks in turn by hand, both by own means, which are summed."""


@fault(
    "mean-instead-of-sum",
    "variable",
    (TABLE, FIRST, SECOND),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class FirstTurnAveragedUnderStatistics(InTurnByHandUnderStatistics):
    """Of two networks in turn by hand the first one's gradients are averaged."""

    def take_turn(self, variables, batch):
        self.operation = "mean" if len(variables) > 1 else "sum"
        return super().take_turn(variables, batch)

    def reduce(self, gradient):
        return all_reduce(self.operation, gradient)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeanOfTermInTwoTurns(TwoTurnsOfTheFirst):
    """Of a network that takes two turns a term is an own mean in both of them."""

    def reduce_losses(self, losses, batch):
        own = tf.reduce_mean(tf.reduce_sum(tf.abs(self.predict(batch)), axis=1))
        return super().reduce_losses(losses, batch) + own
