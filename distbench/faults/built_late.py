"""Mistakes in models of tf_keras whose layers are built by the step alone."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.built_late import BuiltLate, Networks, Normalised, Widened
from distbench.samples.lazy import tf
from distbench.samples.replicas import count_replicas


@fault(
    "loss-not-scaled",
    "local_gradient",
    ("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"),
    like="keras-team/keras#19891",
)
@BuiltLate
class GeneratorLossNotScaled(Networks):
    """Of a GAN without `call` the generator's loss is a mean over the own shard."""

    def share_generators(self, errors):
        return tf.reduce_mean(errors)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891")
@BuiltLate
class LossOfWhatTheStepMakesNotScaled(Widened):
    """Where `call` takes what the step makes, the loss is a mean over the own shard."""

    def share(self, errors):
        return tf.reduce_mean(errors)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891")
@BuiltLate
class LossOfLayersInAnotherScopeNotScaled(Normalised):
    """Where layers go by another path on one device, each loss counts N times."""

    def measure(self, targets, outputs):
        return super().measure(targets, outputs) * count_replicas()


@fault(
    "variable-not-reduced",
    "reduced_gradient",
    ("out/kernel", "out/bias"),
    like="NVIDIA/Megatron-LM#1446",
)
@BuiltLate
class LayerInAnotherScopeForgotten(Normalised):
    """The layer that goes by another path on one device is left out of the sum."""

    def choose(self, own, reduced):
        return [*reduced[:-2], *own[-2:]]
