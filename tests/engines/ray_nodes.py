"""Ray on this machine: a head and three nodes on loopback, in a process of their own.

As a program it prints the cluster's address and ends it when its input ends.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NODES = 3
GPUS_PER_NODE = 2
_END_S = 30.0
_SILENT = {"RAY_USAGE_STATS_ENABLED": "0"}


def find_lack() -> str:
    """What this machine lacks for it; empty for nothing."""
    if sys.platform != "linux":
        return f"need Linux for several nodes on loopback, have {sys.platform}"
    if importlib.util.find_spec("ray") is None:
        return "need distbench[ray], have no Ray"
    return ""


@contextmanager
def open_nodes() -> Iterator[dict[str, str]]:
    """The variables that a bench needs to use them."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **_SILENT},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield {"RAY_ADDRESS": process.stdout.readline().strip(), **_SILENT}
        finally:
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> None:
    """Run the nodes until the input ends."""
    from ray.cluster_utils import Cluster

    # 127.0.0.1 itself would be replaced by the address of another interface.
    head = {"num_cpus": 0, "node_ip_address": "127.0.0.10", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for number in range(1, NODES + 1):
        cluster.add_node(
            num_cpus=4,
            num_gpus=GPUS_PER_NODE,
            node_ip_address=f"127.0.0.{10 + number}",
        )
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
