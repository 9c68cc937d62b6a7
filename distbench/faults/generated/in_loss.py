"""Mistakes in the loss: its scale, the penalty's share, and what is told of it."""

from __future__ import annotations

import numpy as np

from distbench.faults.generated.mistake import Drawn, mistake
from distbench.samples.lazy import tf
from distbench.samples.replicas import all_reduce, count_replicas, find_replica

_LOSS = ("",)


def _may_be_scaled(facts):
    """Whether a wrong scale of the loss shows in every later phase."""
    return not facts.clips


def _is_own_mean(facts):
    """Whether a mean over the own shard is another thing than a share of the sum."""
    uneven = float(np.max(np.abs(facts.weights() - 1))) > 0.03
    return _may_be_scaled(facts) and uneven and facts.plan.path != "mean"


class OfOwnShard:
    """The sum over the shard is divided by what the shard has, times a number."""

    power = 0

    def measure_total(self, batch):
        if count_replicas() == 1:
            return super().measure_total(batch)
        own = tf.reduce_sum(self.weigh(batch))
        return own * float(count_replicas()) ** self.power


@mistake("loss-not-scaled", "loss", like="neuralmagic/sparseml#135")
class LossTimesReplicas:
    """The loss is multiplied by the number of replicas."""

    @staticmethod
    def draw(rng, facts):
        if not _may_be_scaled(facts):
            return None
        if facts.plan.loss_reduction is None and facts.plan.path != "mean":
            # Nothing says that the losses add up, and their mean is right.
            return Drawn(variables=facts.names, phase="local_gradient")
        return Drawn(variables=_LOSS)

    def scale(self, loss):
        return loss * count_replicas()


@mistake("loss-not-scaled", "loss", like="keras-team/keras#19891")
class MeanOfOwnShard(OfOwnShard):
    """A mean over the own shard, not divided by the number of replicas."""

    @staticmethod
    def draw(rng, facts):
        fits = _is_own_mean(facts) and not facts.plan.problem.penalties
        return Drawn(variables=_LOSS) if fits else None


@mistake("mean-of-means", "loss", like="huggingface/transformers#34242")
class MeanOfMeans(OfOwnShard):
    """A mean over the own shard, divided by the number of replicas."""

    power = 1

    @staticmethod
    def draw(rng, facts):
        return Drawn(variables=_LOSS) if _is_own_mean(facts) else None


@mistake("loss-scaled-twice", "loss", like="tensorflow/tensorflow#35333")
class MeanDividedTwice(OfOwnShard):
    """A mean over the own shard, divided by the number of replicas twice."""

    power = 2

    @staticmethod
    def draw(rng, facts):
        fits = _is_own_mean(facts) and not facts.plan.problem.penalties
        return Drawn(variables=_LOSS) if fits else None


@mistake("loss-scaled-twice", "loss", like="tensorflow/tensorflow#55321")
class LossDividedAgain:
    """The share is divided by the number of replicas or by the global batch again."""

    @staticmethod
    def draw(rng, facts):
        if not _may_be_scaled(facts) or facts.plan.path == "mean":
            return None
        by = float(rng.choice([facts.replicas, facts.plan.problem.examples]))
        return Drawn(variables=_LOSS, numbers={"by": by})

    def scale(self, loss):
        return loss / (self.by if count_replicas() > 1 else 1.0)


@mistake("scale-error", "loss", like="deepspeedai/DeepSpeed#5555")
class LossTimesConstant:
    """The loss is multiplied by an odd number."""

    @staticmethod
    def draw(rng, facts):
        if not _may_be_scaled(facts) or facts.plan.path == "mean":
            return None
        return Drawn(variables=_LOSS, numbers={"by": facts.pick_factor(rng)})

    def scale(self, loss):
        return loss * (self.by if count_replicas() > 1 else 1.0)


@mistake("regularizer-not-scaled", "local_gradient", like="tensorflow/models#6195")
class PenaltyCountedOtherwise:
    """The penalty counts N times, 1/N times or not at all."""

    @staticmethod
    def draw(rng, facts):
        names = tuple(facts.plan.problem.penalties)
        if not names or facts.clips or facts.plan.path == "mean":
            return None
        times = float(rng.choice([facts.replicas, 1 / facts.replicas, 0.0]))
        return Drawn(variables=names, phase=facts.root, numbers={"times": times})

    def share_penalty(self, penalty):
        times = self.times if count_replicas() > 1 else 1.0
        return times * super().share_penalty(penalty)


@mistake("regularizer-not-scaled", "local_gradient", like="tensorflow/tensorflow#29873")
class PenaltyOfOneReplica:
    """One replica alone adds its share of the penalty."""

    @staticmethod
    def draw(rng, facts):
        names = tuple(facts.plan.problem.penalties)
        if not names or facts.clips or facts.plan.path == "mean":
            return None
        numbers = {"owner": facts.pick_replica(rng)}
        return Drawn(variables=names, phase=facts.root, numbers=numbers)

    def share_penalty(self, penalty):
        share = super().share_penalty(penalty)
        absent = count_replicas() > 1 and find_replica() != self.owner
        return share * 0.0 if absent else share


@mistake("loss-misreported", "loss", like="keras-team/keras#15509")
class OneReplicaReports:
    """The loss that is shown is that of one replica."""

    @staticmethod
    def draw(rng, facts):
        if facts.plan.loss_reduction is None:
            return None
        numbers = {"reporter": facts.pick_replica(rng)}
        return Drawn(variables=_LOSS, numbers=numbers)

    def report(self, loss):
        shown = count_replicas() == 1 or find_replica() == self.reporter
        return loss if shown else tf.zeros_like(loss)


@mistake("loss-misreported", "loss", like="keras-team/keras#19340")
class SumReported:
    """Every replica returns the sum of all, which is added up once more."""

    @staticmethod
    def draw(rng, facts):
        declared = facts.plan.loss_reduction is not None
        return Drawn(variables=_LOSS) if declared else None

    def report(self, loss):
        return all_reduce("sum", loss)


@mistake("loss-misreported", "loss", like="keras-team/keras#19340")
class ScaledReport:
    """What is shown is not what was differentiated, but a multiple of it."""

    @staticmethod
    def draw(rng, facts):
        if facts.plan.loss_reduction is None:
            return None
        return Drawn(variables=_LOSS, numbers={"times": facts.pick_factor(rng)})

    def report(self, loss):
        return loss * (self.times if count_replicas() > 1 else 1.0)


@mistake("nonfinite", "loss", like="NVIDIA-NeMo/Megatron-Bridge#5591")
class LossOverflows:
    """The loss of one replica is infinite or not a number."""

    @staticmethod
    def draw(rng, facts):
        numbers = {
            "broken": facts.pick_replica(rng),
            "times": float(rng.choice([np.inf, np.nan])),
        }
        return Drawn(variables=_LOSS, numbers=numbers)

    def scale(self, loss):
        broken = count_replicas() > 1 and find_replica() == self.broken
        return loss * (self.times if broken else 1.0)
