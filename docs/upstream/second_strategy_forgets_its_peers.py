"""A second MultiWorkerMirroredStrategy in a process loses what its peers have begun.

Where: each strategy calls `Context.enable_collective_ops` in
tensorflow/python/eager/context.py, which joins the cluster anew. The leader of the
collectives, the first worker, then forgets which peers have called it. One that has
begun a collective of its own second strategy by then is told that it is aborted, or
waits without end where the two strategies count their groups apart. Whoever makes a
strategy for each trial of a search, or in each test of a file, meets it now and then.

distbench: tasks that wait (`distbench.Spares`) join once. No thread was found.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WORKERS = 2
LIMIT_S = 10


def share_a_variable():
    """The first worker's value, broadcast, or what comes in its place."""
    import tensorflow as tf

    found = ["no answer"]

    def make():
        try:
            with tf.distribute.MultiWorkerMirroredStrategy().scope():
                found[0] = float(tf.Variable(2.0).numpy())
        except tf.errors.OpError as error:
            reason = str(error).partition("aborted by: ")[2].splitlines()[0]
            found[0] = f"{type(error).__name__}, {reason}"

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return found[0]


def run_worker(folder):
    """What a worker does; the last one tells."""
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    lines = [f"a first strategy: {share_a_variable()}"]
    (folder / f"{index}").touch()
    while len(list(folder.iterdir())) < WORKERS:
        time.sleep(0.01)
    if index == 0:
        time.sleep(1)
    lines.append(
        f"a second one, of the first worker a second later: {share_a_variable()}"
    )
    if index == WORKERS - 1:
        print(*lines, sep="\n", flush=True)
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
    with tempfile.TemporaryDirectory() as folder:
        for index in range(WORKERS):
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": {"worker": addresses}, "task": task})
            environment = {**os.environ, "TF_CONFIG": config}
            command = [sys.executable, __file__, folder]
            workers.append(subprocess.Popen(command, env=environment))
        for worker in workers:
            worker.wait()


if sys.argv[1:]:
    run_worker(Path(sys.argv[1]))
else:
    start_workers()
