"""The workloads of the bench, by name."""

from __future__ import annotations

from distbench.worker.workloads.base import Workload
from distbench.worker.workloads.constrained import Constrained
from distbench.worker.workloads.counting import Counting
from distbench.worker.workloads.embedding import Embedding
from distbench.worker.workloads.linear import Linear
from distbench.worker.workloads.mlp import Mlp
from distbench.worker.workloads.overflow import Overflow
from distbench.worker.workloads.regularized import Regularized

WORKLOADS: dict[str, type[Workload]] = {
    "linear": Linear,
    "mlp": Mlp,
    "embedding": Embedding,
    "regularized": Regularized,
    "constrained": Constrained,
    "overflow": Overflow,
    "counting": Counting,
}

__all__ = ["WORKLOADS", "Workload"]
