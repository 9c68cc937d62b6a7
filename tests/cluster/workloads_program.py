"""Takes each workload's gradients on two logical CPUs and on one; run as a program.

A process of its own, because logical devices are configured once per process.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

from distbench.scenario.choices import WORKLOADS
from distbench.split import shard_slices, split_unevenly
from distbench.worker.workloads import Workload, find_workload

EXAMPLES = 8
DTYPES = ("float32", "float16", "bfloat16", "float64")


def main(out: Path) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    results = {
        "mirrored": {name: take_gradients(find_workload(name)) for name in WORKLOADS},
        "linear": {dtype: take_linear(dtype) for dtype in DTYPES},
        "proofs": take_proofs(),
        "data": {
            name: [make(find_workload(name)).data(step) for step in (0, 1, 0)]
            for name in WORKLOADS
        },
    }
    out.write_bytes(pickle.dumps(results))


def make(cls: type[Workload], dtype: str = "float32") -> Workload:
    return cls(examples=EXAMPLES, dtype=dtype, seed=3)


def take_gradients(cls: type[Workload]) -> dict[str, Any]:
    sizes = split_unevenly(EXAMPLES, 2)
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    cluster = make(cls)
    with strategy.scope():
        cluster.build()
    batch = tuple(
        strategy.experimental_distribute_values_from_function(
            lambda context, a=array: tf.constant(
                a[shard_slices(sizes)[context.replica_id_in_sync_group]]
            )
        )
        for array in cluster.data(0)
    )

    @tf.function
    def step(shards: Any) -> Any:
        return strategy.run(lambda b: differentiate(cluster, b, 2), args=(shards,))

    device = make(cls)
    device.build()
    whole = differentiate(device, tuple(map(tf.constant, device.data(0))), 1)
    return {
        "names": [v.name for v in device.variables()],
        "local": [
            [to_numpy(part) for part in strategy.experimental_local_results(gradient)]
            for gradient in step(batch)
        ],
        "whole": [to_numpy(gradient) for gradient in whole],
    }


def take_linear(dtype: str) -> dict[str, Any]:
    """Loss and gradients of the whole batch and of each single example."""
    workload = make(find_workload("linear"), dtype)
    workload.build()
    batch = tuple(map(tf.constant, workload.data(1)))
    singles = [tuple(a[i : i + 1] for a in batch) for i in range(EXAMPLES)]
    return {
        "whole": [to_numpy(g) for g in differentiate(workload, batch, 1)],
        "singles": [
            [to_numpy(g) for g in differentiate(workload, b, 1)] for b in singles
        ],
    }


def take_proofs() -> dict[tuple[str, int], bool]:
    proofs = {}
    for dtype in DTYPES:
        for examples in (6, 8, 16, 128, 1024):
            linear = find_workload("linear")(examples=examples, dtype=dtype, seed=3)
            shards = split_unevenly(examples, 4)
            proofs[dtype, examples] = linear.prove_exact(0, shards)
    mlp = make(find_workload("mlp"))
    proofs["mlp", EXAMPLES] = mlp.prove_exact(0, (5, 3))
    return proofs


def differentiate(workload: Workload, batch: Any, replicas: int) -> list[Any]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(workload.compute_losses(batch)) / EXAMPLES
        penalty = workload.compute_penalty()
        if penalty is not None:
            loss += penalty / replicas
    return [loss, *tape.gradient(loss, workload.variables())]


def to_numpy(value: Any) -> Any:
    """An array, None, or (indices, values) of a sparse gradient."""
    if isinstance(value, tf.IndexedSlices):
        return value.indices.numpy(), value.values.numpy()
    return None if value is None else value.numpy()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
