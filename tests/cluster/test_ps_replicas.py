"""What the replicas of one worker are under parameter servers, and their loss.

TensorFlow makes a replica for each GPU of a worker, and none for its logical CPUs. How
several share a step shows on CPUs as well, if a strategy is told to take them.
"""

from __future__ import annotations

import numpy as np
import pytest

import distbench
from distbench.gpus import count_gpus
from distbench.launch.ports import lease_ports

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
EXAMPLES, STEPS = 6, 2


def take_steps(ports: tuple[int, ...], divisor: float, *, takes_cpus: bool):
    """In one process: two workers with two logical CPUs each, and steps on them.

    Args:
        ports: Of the workers and of the parameter server.
        divisor: What each replica divides the sum of its losses by.
        takes_cpus: Whether the strategy makes replicas of logical CPUs.

    Returns:
        The number of replicas, how many examples each one had in a step, the variable
        and the number of updates.
    """
    import numpy as np
    import tensorflow as tf
    import tf_keras
    from tensorflow.python.distribute import parameter_server_strategy_v2 as servers

    def take_cpus(self):
        self._num_gpus_per_worker = 2

    if takes_cpus:
        extended = servers.ParameterServerStrategyV2Extended
        extended._set_num_gpus = take_cpus
        extended.worker_devices = ("/device:CPU:0", "/device:CPU:1")
    addresses = [f"127.0.0.1:{port}" for port in ports]
    spec = tf.train.ClusterSpec({"worker": addresses[:2], "ps": addresses[2:]})
    config = tf.compat.v1.ConfigProto(
        device_count={"CPU": 2}, inter_op_parallelism_threads=4
    )
    places = [("worker", 0), ("worker", 1), ("ps", 0)]
    started = [
        tf.distribute.Server(
            spec, job_name=role, task_index=index, protocol="grpc", config=config
        )
        for role, index in places
    ]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        variable = tf.Variable(np.float32(0))
        optimizer = tf_keras.optimizers.legacy.SGD(0.5)

    def replica_step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((variable - batch) ** 2) / divisor
        gradient = tape.gradient(loss, variable)
        optimizer.apply_gradients([(gradient, variable)])
        return tf.size(batch)

    def make_batches():
        examples = tf.data.Dataset.range(EXAMPLES, output_type=tf.int64)
        numbers = examples.map(lambda number: tf.cast(number, tf.float32))
        return strategy.experimental_distribute_dataset(
            numbers.batch(EXAMPLES).repeat()
        )

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    batches = iter(coordinator.create_per_worker_dataset(make_batches))

    @tf.function
    def step(iterator):
        counts = strategy.run(replica_step, args=(next(iterator),))
        return strategy.experimental_local_results(counts)

    for _ in range(STEPS):
        counts = coordinator.schedule(step, args=(batches,))
        coordinator.join()
    found = [int(count) for count in counts.fetch()]
    del started
    return replicas, found, float(variable.numpy()), int(optimizer.iterations.numpy())


def run_steps(divisor: float, *, takes_cpus: bool):
    with lease_ports(3) as lease:
        args = (tuple(lease.ports), divisor)
        return distbench.run(
            lambda *given: take_steps(*given, takes_cpus=takes_cpus), "one", args=args
        )["worker", 0]


def follow(divisor: float) -> float:
    """The same on one device, with the whole batch in each step."""
    batch, variable = np.arange(EXAMPLES), 0.0
    for _ in range(STEPS):
        variable -= 0.5 * np.sum(2 * (variable - batch)) / divisor
    return float(variable)


def test_logical_cpus_of_a_worker_are_no_replicas() -> None:
    found = run_steps(EXAMPLES, takes_cpus=False)
    assert found == (1, [EXAMPLES], pytest.approx(follow(EXAMPLES)), STEPS)


def test_replicas_of_a_worker_share_a_step_and_add_up_their_gradients() -> None:
    """So each divides by the batch of the step, that of its own worker alone."""
    found = run_steps(EXAMPLES, takes_cpus=True)
    halves = [EXAMPLES // 2] * 2
    assert found == (2, halves, pytest.approx(follow(EXAMPLES)), STEPS)
    twice = run_steps(2 * EXAMPLES, takes_cpus=True)
    assert twice[2] == pytest.approx(follow(2 * EXAMPLES))
    assert twice[2] != pytest.approx(follow(EXAMPLES), rel=0.1)


def count_replicas():
    """In the chief: the GPUs of all workers, and the replicas of one."""
    import os

    import tensorflow as tf

    if '"type": "chief"' not in os.environ["TF_CONFIG"]:
        return None
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    gpus = [d.name for d in tf.config.list_logical_devices("GPU") if "worker" in d.name]
    return gpus, strategy.num_replicas_in_sync


@pytest.mark.gpu
def test_the_gpu_of_a_worker_is_its_replica() -> None:
    if (have := count_gpus()) < 1:
        pytest.skip(f"need 1 GPU, have {have}")
    gpus, replicas = distbench.run(count_replicas, "ps:1+1@gpu")["chief", 0]
    assert len(gpus) == replicas == 1
