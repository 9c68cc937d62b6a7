"""Weight decay done by hand, right."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.optimizers import (
    DecayBeforeTheSum,
    DecayOfRows,
    DecayOfSigns,
    SoftThreshold,
    optimizer,
)
from distbench.samples.program import DecayedByHand as _DecayedByHand
from distbench.samples.replicas import find_replica
from distbench.unusual.program import unusual


@unusual()
class ShrunkAfterTheStep(_DecayedByHand):
    """Every copy is shrunk once, after the optimizer's step."""


@unusual(workload="embedding")
@optimizer("SGD", 0.1, momentum=0.9)
class DecayByTheFirst(DecayBeforeTheSum):
    """The first replica adds all of the decay to its gradient, and no other does."""

    def find_share(self):
        return 1.0 if find_replica() == 0 else 0.0


@unusual(workload="embedding")
@optimizer("SGD", 0.1)
class DecayOfRowsOfAll(DecayOfRows):
    """Rows that any example has decay, once the replicas' gradients are added up."""

    def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
        rows = grad + self.decay * self.find_share() * tf.gather(var, indices)
        return super()._resource_apply_sparse(rows, var, indices, apply_state)


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class DecayAlongSigns(DecayOfSigns):
    """The decay is that of an L1 penalty, and part of the update."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class SparseByThreshold(SoftThreshold):
    """Each step ends with a soft threshold, which sets small elements to 0."""

    decay = 0.05
