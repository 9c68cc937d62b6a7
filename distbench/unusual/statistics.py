"""What an optimizer keeps of all gradients at once, right."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.replicas import all_reduce
from distbench.samples.tracking import TracksTheNorm as _TracksTheNorm
from distbench.unusual.program import unusual


@unusual(workload="embedding")
@optimizer("SGD", 0.05)
class NormOfTheSum(_TracksTheNorm):
    """A running norm is that of the sum, which every replica makes for it."""

    def measure(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return tf.linalg.global_norm(list(all_reduce("sum", dense)))
