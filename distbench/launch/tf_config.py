"""TF_CONFIG: how TensorFlow tells a task who its peers are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from distbench.cluster import ClusterSpec, Task

LOOPBACK = "127.0.0.1"
"""The only address that tasks of this machine are told of, and serve on.

TensorFlow's gRPC servers would bind to every interface all the same; what keeps them
from it is `distbench.launch.bind_filter`.
"""


def count_ports(spec: ClusterSpec) -> int:
    """How many ports the cluster listens on: one a task, none for a single process."""
    return len(spec.tasks) if spec.traits.tf_config else 0


def assign_addresses(
    spec: ClusterSpec, ports: Sequence[int], hosts: Sequence[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """The address of each task, by role and then by index; empty without ports.

    Args:
        spec: The resolved cluster spec.
        ports: A port for each task.
        hosts: The host of each task; None is this machine.
    """
    addresses: dict[str, tuple[str, ...]] = {}
    if count_ports(spec):
        hosts = hosts or [LOOPBACK] * len(ports)
        for task, host, port in zip(spec.tasks, hosts, ports, strict=True):
            known = addresses.get(task.role, ())
            addresses[task.role] = (*known, f"{host}:{port}")
    return addresses


def list_hosts(addresses: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Where the tasks are, each host once."""
    found = (
        address.rpartition(":")[0] for role in addresses.values() for address in role
    )
    return tuple(dict.fromkeys(found))


def make_tf_config(task: Task, addresses: Mapping[str, Sequence[str]]) -> str | None:
    """The JSON text for one task, or None where TF_CONFIG must not be set."""
    if not addresses:
        return None
    cluster = {role: list(found) for role, found in addresses.items()}
    return json.dumps(
        {"cluster": cluster, "task": {"type": task.role, "index": task.index}}
    )
