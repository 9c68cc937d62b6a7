"""Mistakes beside numbers that each replica draws by its own, which no device has."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, TRAINED
from distbench.samples.replicas import all_reduce
from distbench.unusual.own_draws import (
    EvolvesByOwnProbes,
    OwnSigns,
    SlopesAlongOwnProbes,
    SlopesAlongOwnProbesSummedFirst,
)

_CURVED = tuple(f"square{place}" for place in range(len(TRAINED)))
_LIKE = "tensorflow/tensorflow#58433"


@fault("missing-reduction", "variable", BUFFERS, like="horovod/horovod#2654")
class OwnSlopesNotSummed(SlopesAlongOwnProbes):
    """Nobody sums the slopes along own probes."""

    def reduce(self, gradient):
        return gradient


@fault(
    "mean-instead-of-sum",
    "variable",
    (*BUFFERS, *TRAINED),
    like="horovod/horovod#2654",
)
class MeanOfOwnSlopes(EvolvesByOwnProbes):
    """Slopes along own probes are averaged where they are shares of a sum."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault("replicas-diverged", "reduced_gradient", TRAINED, like=_LIKE)
class SumAlongOneProbe(SlopesAlongOwnProbesSummedFirst):
    """Slopes along own probes are summed, and each replica goes along its own."""

    def replica_step(self, batch):
        values = list(map(tf.convert_to_tensor, self.trained()))
        probes = self.draw(values)
        loss, slope = self.find_slope(values, probes, batch)
        self.go(all_reduce("sum", slope), probes)
        return loss

    def go(self, slope, probes):
        """Hand what all have of the slope along some probes to the optimizer."""
        gradients = [slope * probe for probe in probes]
        self.optimizer().apply_gradients(
            zip(gradients, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


@fault("unexplained", "variable", TRAINED, like=_LIKE, clusters=("mirrored:2",))
class SumAlongFirstProbe(SumAlongOneProbe):
    """Slopes along own probes are summed, all go along the first one's."""

    def build(self, strategy):
        super().build(strategy)
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.table, self.first, self.second, self.bias, self.head = (
            tf.Variable(v, name=v.name.partition(":")[0], aggregation=first)
            for v in self.trained()
        )

    def make_optimizer(self):
        return None

    def go(self, slope, probes):
        for variable, probe in zip(self.trained(), probes, strict=True):
            variable.assign_sub(0.01 * slope * probe)


@fault("statistics-not-synchronized", "variable", _CURVED, like=_LIKE)
class OwnCurvatureAlongOwnSigns(OwnSigns):
    """Curvatures along own signs are not summed."""

    def join(self, curvatures):
        return curvatures
