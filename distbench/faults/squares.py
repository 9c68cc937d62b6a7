"""Second moments of own gradients: about a mean, of rows and columns, or of layers."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import TRAINED
from distbench.samples.replicas import all_reduce, count_replicas, update
from distbench.samples.second_moments import FactoredMoments, NormOfLayer
from distbench.unusual.by_hand import (
    RootsByHand,
    SquaresAboutMeanByHand,
    SquaresAboutMomentByHand,
)

_FACTORS = ("table/row", "table/column", "kernel/row", "kernel/column", "bias/full")
_ROOTS = tuple(f"root{place}" for place in range(len(TRAINED)))


@fault(
    "slot-from-local-gradient",
    "variable",
    tuple(f"square{place}" for place in range(len(TRAINED))),
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)
class OwnSquaresAboutMean(SquaresAboutMeanByHand):
    """Each replica squares its own distance from the mean, and these are averaged."""

    def take_second(self, own, total):
        del total
        return all_reduce("mean", (count_replicas() * own - self.mean) ** 2)


@fault(
    "slot-from-local-gradient",
    "variable",
    tuple(f"square{place}" for place in range(len(TRAINED))),
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)
class OwnSquaresAboutMomentSummed(SquaresAboutMomentByHand):
    """Each replica squares its own distance from the mean, and these are added up."""

    def take_second(self, own, total):
        del total
        return all_reduce("sum", (own - self.moved) ** 2)


@fault(
    "slot-from-local-gradient",
    "slot",
    _ROOTS,
    like="keras-team/keras#20703",
    clusters=("mirrored:3", "mwms:2"),
)
class RootsOfOwnSquares(RootsByHand):
    """The squares are of the own gradient, and divide the sum of all."""

    def choose(self, own, total):
        return own


@fault(
    "slot-from-local-gradient",
    "variable",
    _ROOTS,
    like="keras-team/keras#20703",
    clusters=("mirrored:3", "mwms:2"),
)
class LargestOfOwnSquares(RootsOfOwnSquares):
    """The largest own squares are kept, and nothing tells whose gradients these are."""

    def keep(self, buffer, square):
        return tf.maximum(0.5 * buffer, square)


class _FedBeforeTheSum:
    """Averages take squares in apply_gradients, before the optimizer sums."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = list(grads_and_vars)
        with tf.init_scope():
            self._create_all_weights([variable for _, variable in pairs])
        for gradient, variable in pairs:
            for slot, taken in self.list_squares(tf.convert_to_tensor(gradient)):
                update(self.get_slot(variable, slot), self.feed, self.join(taken))
        return super().apply_gradients(pairs, name, **kwargs)

    def join(self, taken):
        return all_reduce("sum", taken)

    def update_slots(self, grad, var):
        """Nothing: they were fed before."""


_factors_of_own = fault(
    "slot-from-local-gradient",
    "slot",
    _FACTORS,
    like="keras-team/keras#20703",
    clusters=("mirrored:2", "mwms:3"),
    workload="embedding",
)


@_factors_of_own
@optimizer("Optimizer", "OwnRule")
class FactorsOfOwnSquares(_FedBeforeTheSum, FactoredMoments):
    """Rows and columns of squares, at a rate by steps, are those of own gradients."""


@_factors_of_own
@optimizer("Optimizer", "OwnRule")
class FactorsOfScaledSquares(_FedBeforeTheSum, FactoredMoments):
    """The same of N times the own gradients, whose squares are averaged."""

    def join(self, taken):
        return all_reduce("mean", count_replicas() ** 2 * taken)


@fault(
    "hyperparameter-differs",
    "slot",
    tuple(f"OwnRule/{name}" for name in _FACTORS),
    like="tensorflow/addons#2351",
    clusters=("mirrored:2", "mwms:3"),
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class FactorsForgottenByReplicas(FactoredMoments):
    """Rows and columns forget from step to step by an exponent over N."""

    def feed(self, slot, taken):
        self.exponent = -0.8 / count_replicas()
        super().feed(slot, taken)


@fault(
    "slot-from-local-gradient",
    "slot",
    ("table/size", "kernel/size", "bias/size"),
    like="deepspeedai/DeepSpeed#490",
    clusters=("mirrored:2", "mwms:3"),
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class LayersOfOwnNorms(_FedBeforeTheSum, NormOfLayer):
    """The squared norm of a layer, with which an average starts, is that of shards."""
