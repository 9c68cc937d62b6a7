"""One device, and nobody to share anything with."""

from __future__ import annotations

from distbench.cluster.kind import ClusterKind

KIND = ClusterKind(name="one", single=True, shown=("one",))
