"""Devices, threads and strategies of a task: how one is made, a file for each kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import tensorflow as tf

from distbench.cluster import KINDS, ClusterSpec, Task
from distbench.worker.process.chance import seed_chance
from distbench.worker.process.own_gpus import open_gpus

_INTRA_OP_THREADS = 1
"""One thread within an op: with several, how TensorFlow splits a product among them
decides in which order it is summed, and the same shard would not give the same bits."""

_REWRITES = ("arithmetic_optimization", "constant_folding", "remapping")
"""Passes of TensorFlow's graph optimizer that put other formulas in the place of those
of the program, which round otherwise. Which they find depends on the graph around: the
same update of RMSprop came out one ulp apart on one device and on two replicas, and a
division by the number of elements of a sparse gradient as well: a constant is folded to
a multiplication by 1/n, and on a cluster it is gathered."""

_UNORDERED = ("dependency_optimization",)
"""A pass that drops the edge by which an update waits for the read of its variable. Of
a loss that is linear in its last layer (a critic's score) some steps of tf_keras'
legacy SGD then had gradients of weights that were updated already, in TensorFlow alone
and on one device; how many is chance, and often none."""

_MAKERS: Mapping[str, Callable[[ClusterSpec, str], tf.distribute.Strategy]] = {
    kind: import_module(f"{__name__}.{kind}").make_strategy for kind in KINDS
}


def configure_runtime(
    spec: ClusterSpec,
    role: str,
    seed: int,
    *,
    jit: bool | None = None,
    op_determinism: bool = False,
) -> None:
    """Set threads, devices and seed. Must come before the first op of the process.

    Args:
        spec: The resolved cluster spec.
        role: That of the task.
        seed: The global seed of TensorFlow, NumPy and Python, from whose `random`
            Keras draws the seed of an initializer that was given none.
        jit: Whether XLA clusters ops by itself; None leaves it to TensorFlow.
        op_determinism: Whether ops have to repeat their bits; see
            `tf.config.experimental.enable_op_determinism`.
    """
    if op_determinism:
        tf.config.experimental.enable_op_determinism()
    if jit is not None:
        tf.config.optimizer.set_jit("autoclustering" if jit else False)
    tf.config.optimizer.set_experimental_options(
        dict.fromkeys((*_REWRITES, *_UNORDERED), False)
    )
    tf.config.threading.set_intra_op_parallelism_threads(_INTRA_OP_THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(_count_inter_op_threads(spec))
    if spec.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
    else:
        open_gpus(spec, role)
    if spec.traits.divides_cpu and spec.device == "cpu":
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration()] * spec.replicas_per_worker
        tf.config.set_logical_device_configuration(cpu, logical)
    seed_chance(seed)


def _count_inter_op_threads(spec: ClusterSpec) -> int:
    """Threads among which ops are shared out.

    A parameter server hangs with one: a worker's pending request holds it while the
    answer waits for it. Replicas that meet in a collective need one each.
    """
    pending = spec.workers if spec.traits.scheduled else 1
    return 1 + max(pending, spec.replicas_per_worker)


def make_strategy(spec: ClusterSpec, partitioner: str = "") -> tf.distribute.Strategy:
    """The strategy of the calling task, which is no parameter server.

    Args:
        spec: Its cluster.
        partitioner: Into which shards parameter servers cut variables.
    """
    return _MAKERS[spec.kind](spec, partitioner)


def serve_forever(spec: ClusterSpec, task: Task) -> Any:
    """Start the gRPC server of a worker or parameter server whom a chief schedules.

    Returns:
        The running server; it serves from threads of its own until the process ends.
    """
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=_count_inter_op_threads(spec),
        intra_op_parallelism_threads=_INTRA_OP_THREADS,
    )
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    return tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=task.role,
        task_index=task.index,
        protocol="grpc",
        config=config,
    )
