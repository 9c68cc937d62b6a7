"""A chief that has workers take steps on the variables of parameter servers."""

from __future__ import annotations

from distbench.cluster.kind import ClusterKind

KIND = ClusterKind(
    name="ps",
    sizes=("W+P",),
    strategy=(
        "tf.distribute.ParameterServerStrategy(\n"
        "    tf.distribute.cluster_resolver.SimpleClusterResolver("
        'cluster, rpc_layer="grpc")$cut)'
    ),
    scheduled=True,
    variables_on_cpu=True,
    tf_config=True,
    takes_gpus=False,
    smaller=("ps:1+1", "ps:2+1"),
    shown=("ps:2+1", "ps:4+2"),
)
