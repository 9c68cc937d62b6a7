"""Devices of one process, each with a copy of all variables."""

from __future__ import annotations

from distbench.cluster.kind import ClusterKind

KIND = ClusterKind(
    name="mirrored",
    sizes=("R",),
    strategy="tf.distribute.MirroredStrategy($devices)",
    divides_cpu=True,
    smaller=("mirrored:2",),
    shown=(
        "mirrored:2",
        "mirrored:4",
        "mirrored:8",
        "mirrored:2@gpu",
        "mirrored:8@gpu",
    ),
)
