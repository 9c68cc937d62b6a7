"""Devices of one process that share variables, which are beside them on the CPU."""

from __future__ import annotations

from distbench.cluster.kind import ClusterKind

KIND = ClusterKind(
    name="central",
    sizes=("R",),
    strategy="""\
tf.distribute.experimental.CentralStorageStrategy(
    compute_devices=$devices, parameter_device="cpu:0")""",
    divides_cpu=True,
    variables_on_cpu=True,
    smaller=("central:2",),
    shown=("central:2",),
)
