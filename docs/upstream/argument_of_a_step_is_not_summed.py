"""A worker with one replica cannot sum or gather what is an argument of its step.

Where: `ReplicaContext.all_reduce` and `all_gather` take the value itself for the place
where the result is to be (`_batch_reduce_destination` in
tensorflow/python/distribute/distribute_lib.py), and `check_destinations` in
tensorflow/python/distribute/cross_device_ops.py asks a tensor for its device. An
argument of a `tf.function` has none while the function is traced, nor has a batch of
`experimental_distribute_dataset` that is handed to one: `ValueError: destinations can
not be empty`. With several replicas in a process the value is one of all replicas, and
it works. So does whatever is made of the argument: labels that are gathered for a loss
over all replicas need a `tf.identity`.

distbench: `raises`, with the line; `mirrored` passes.
"""

import json
import os
import socket
import subprocess
import sys

WORKERS = 2


def gather():
    """What a worker does; the first one tells."""
    import tensorflow as tf

    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step(labels, is_argument):
        def run(own):
            context = tf.distribute.get_replica_context()
            return context.all_gather(own if is_argument else tf.identity(own), axis=0)

        return strategy.run(run, args=(labels,))

    for name, is_argument in (("its identity", False), ("the argument", True)):
        try:
            told = step(tf.constant([index]), is_argument).numpy().tolist()
        except ValueError as error:
            told = f"ValueError: {str(error).strip().rpartition('ValueError: ')[2]}"
        if index == 0:
            print(f"{name}: {told}", flush=True)
    # A worker waits for the others at its end.
    os._exit(0)


def start_workers():
    """Start the workers and wait for them."""
    sockets = [socket.socket() for _ in range(WORKERS)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    workers = []
    for index in range(WORKERS):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        environment = {**os.environ, "TF_CONFIG": config}
        command = [sys.executable, __file__, "worker"]
        workers.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        )
    for worker in workers:
        worker.wait()


if sys.argv[1:]:
    gather()
else:
    start_workers()
