"""Keras 3's `fit` raises under MultiWorkerMirroredStrategy.

Where: keras/src/backend/tensorflow/trainer.py. `_maybe_symbolic_build` hands the batch
`(x, y)` to `strategy.reduce`, which makes a tensor of the whole tuple. Without it, for
a model whose losses and metrics were built before, `reduce_per_replica` takes
`strategy.reduce("MEAN", value, axis=0)` of scalars, which have no axis 0.

distbench: `raises` at the first step, origin `framework`. Thread:
https://github.com/keras-team/keras/issues/20585 (found open).
"""

import json
import os
import socket
import subprocess
import sys

WORKERS = 2


def train(module, strategy, *, built=False):
    """One step of `fit`; what came of it."""
    import numpy as np

    x = np.ones((4, 1), np.float32)
    with strategy.scope():
        model = module.Sequential([module.layers.Input((1,)), module.layers.Dense(1)])
        model.compile(module.optimizers.SGD(1.0), "mse")
        if built:
            model._symbolic_build(data_batch=(x, x))
            model._maybe_symbolic_build = lambda **_: None
    try:
        model.fit(x, x, batch_size=4, epochs=1, verbose=0)
    except Exception as error:  # noqa: BLE001  # each fails in its own way
        return f"{type(error).__name__}: {str(error).splitlines()[0][:58]}"
    return "trains"


def run_worker():
    """What a worker does; the first one tells."""
    import keras
    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    lines = [
        f"tf_keras: {train(tf_keras, strategy)}",
        f"Keras 3:  {train(keras, strategy)}",
        f"Keras 3, built before: {train(keras, strategy, built=True)}",
    ]
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
        print(*lines, sep="\n", flush=True)
    # A worker waits for the others at its end, which may have failed elsewhere.
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
        workers.append(subprocess.Popen(command, env=environment))
    for worker in workers:
        worker.wait()


if sys.argv[1:]:
    run_worker()
else:
    start_workers()
