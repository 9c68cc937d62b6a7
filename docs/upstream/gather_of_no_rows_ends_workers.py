"""A worker with CPUs ends by SIGSEGV where all workers gather no rows.

Where: `all_gather` of a tensor without rows on every worker, and so the sum of a sparse
gradient without rows, as of an embedding whose ids are all masked out. Rows on one
worker are enough for it to work, and `all_reduce` of none works. The process ends, with
no exception and no line that would say which collective it was.

distbench: a check ends as an error that names this where a task ends by SIGSEGV.
"""

import json
import os
import signal
import socket
import subprocess
import sys

WORKERS = 2


def gather(rows):
    """What a worker does: gathers its rows."""
    import tensorflow as tf

    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step():
        def run():
            own = tf.zeros([rows[index], 3])
            return tf.distribute.get_replica_context().all_gather(own, axis=0)

        return strategy.run(run)

    step()
    # A worker waits for the others at its end.
    os._exit(0)


def start_workers(rows):
    """Start the workers, and tell how they end."""
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
        command = [sys.executable, __file__, *map(str, rows)]
        workers.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        )
    signals = {-code for code in [worker.wait() for worker in workers] if code < 0}
    # Who is not the first to end may be told by its peer before.
    how = " and ".join(f"ended by {signal.Signals(n).name}" for n in sorted(signals))
    print(f"rows {rows[0]} and {rows[1]}: {how or 'gathered'}", flush=True)


if sys.argv[1:]:
    gather([int(rows) for rows in sys.argv[1:]])
else:
    start_workers((0, 2))
    start_workers((0, 0))
