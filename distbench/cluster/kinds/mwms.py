"""Workers, each with a copy of all variables on each of its devices."""

from __future__ import annotations

from distbench.cluster.kind import ClusterKind

KIND = ClusterKind(
    name="mwms",
    sizes=("W", "WxR"),
    strategy="tf.distribute.MultiWorkerMirroredStrategy()",
    collective=True,
    tf_config=True,
    smaller=("mirrored:2", "mwms:2"),
    shown=("mwms:2", "mwms:4", "mwms:8", "mwms:32", "mwms:2@gpu", "mwms:2x4@gpu"),
)
