"""Mistakes in sharing a penalty that does not depend on the examples."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import BIAS, HEAD, SECOND, PenalisedProgram, WholePenalty
from distbench.samples.replicas import count_replicas, find_replica
from distbench.unusual.likelihood import LearnedNoise, LearnedNoises
from distbench.unusual.penalties import PenaltyForEachExample

_WHERE = (SECOND, HEAD)


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    _WHERE,
    like="tensorflow/models#6195",
    clusters=WIDE,
)
class PenaltyOnEveryReplica(WholePenalty, PenalisedProgram):
    """Every replica adds the whole L2 penalty."""


@fault(
    "regularizer-not-scaled",
    "loss",
    ("", *_WHERE),
    like="tensorflow/models#6195",
)
class SmallPenaltyOnEveryReplica(PenaltyOnEveryReplica):
    """Every replica adds the whole of a penalty that is hardly more than rounding."""

    def compute_penalty(self):
        return 1e-4 * super().compute_penalty()


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    _WHERE,
    like="keras-team/keras#20609",
    clusters=WIDE,
)
class AbsolutePenaltyOnEveryReplica(WholePenalty, PenalisedProgram):
    """Every replica adds the whole L1 penalty."""

    def compute_penalty(self):
        return 0.1 * (
            tf.reduce_sum(tf.abs(self.second)) + tf.reduce_sum(tf.abs(self.head))
        )


@fault(
    "regularizer-not-scaled", "local_gradient", _WHERE, like="keras-team/keras#20609"
)
class HalfOfElasticPenaltyOnEveryReplica(PenalisedProgram):
    """The L1 part of a penalty is shared out; every replica adds all of the L2 part."""

    def share_penalty(self, penalty):
        sizes = [tf.reduce_sum(tf.abs(v)) for v in (self.second, self.head)]
        return penalty + 0.05 * tf.add_n(sizes) / count_replicas()


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    _WHERE,
    like="tensorflow/tensorflow#29873",
    clusters=WIDE,
)
class PenaltyOnFirstReplicaAlone(PenalisedProgram):
    """The penalty is declared on replica 0 only, and still divided by N."""

    def share_penalty(self, penalty):
        if find_replica() > 0:
            return tf.zeros_like(penalty)
        return penalty / count_replicas()


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    _WHERE,
    like="keras-team/keras#20609",
    clusters=WIDE,
)
class PenaltyDividedTwice(PenalisedProgram):
    """Each replica's share of the penalty is divided by N once more."""

    def share_penalty(self, penalty):
        return penalty / count_replicas() ** 2


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    (SECOND, BIAS),
    like="tensorflow/models#6195",
)
class PenaltyOnSmallVariables(WholePenalty, PenalisedProgram):
    """Every replica adds the whole penalty, which is on a kernel and on its bias."""

    def compute_penalty(self):
        return 0.1 * (tf.reduce_sum(self.second**2) + tf.reduce_sum(self.bias**2))


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    ("noise",),
    like="keras-team/keras#19891",
    clusters=WIDE,
)
class WholeNormaliser(WholePenalty, LearnedNoise):
    """The logarithm of a trained noise is added in full by every replica."""


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    ("noise",),
    like="keras-team/keras#19891",
)
class WholeNormalisers(WholePenalty, LearnedNoises):
    """The logarithms of two trained noises are added in full by every replica."""


@fault(
    "regularizer-not-scaled", "local_gradient", _WHERE, like="tensorflow/models#6195"
)
class PenaltyForOwnExamples(PenaltyForEachExample):
    """It is divided by the number of the own examples, and by nothing else."""

    def share_penalty(self, penalty):
        return 8 * penalty / tf.cast(self.own, penalty.dtype)


@fault(
    "regularizer-not-scaled", "local_gradient", _WHERE, like="keras-team/keras#19891"
)
class SharedPenaltyForOwnExamples(PenaltyForOwnExamples):
    """It is divided by the number of the own examples, and by N."""

    def share_penalty(self, penalty):
        return super().share_penalty(penalty) / count_replicas()


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=WIDE)
class WholePenaltyBesideOwnMean(WholePenalty, PenalisedProgram):
    """A mean over the own shard is divided by N, and the penalty beside it is not."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses) / count_replicas()
