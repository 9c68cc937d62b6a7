"""What comes before a cluster trains: its subject is built, and the reference made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distbench.cluster import Task
from distbench.launch.group import Group
from distbench.observe.deadline import Deadline
from distbench.observe.one_device import OneDevice
from distbench.scenario import PIPELINE, Scenario
from distbench.target import TargetRef


def prepare_both(
    one: OneDevice,
    cluster: Group,
    scenario: Scenario,
    payload: Mapping[str, Any],
    *,
    target: TargetRef,
    tasks: Sequence[Task],
    deadline: Deadline,
) -> tuple[Mapping[str, Any], Callable[[], object]]:
    """Build a subject and trace its step on a cluster, and have its reference made.

    Building and tracing needs no reference, so both go on at once. What fails on one
    device already is said of that, not of the cluster.

    Args:
        one: Makes the reference, or has made it for another cluster.
        cluster: The cluster.
        scenario: What is run.
        payload: Of all of these jobs.
        target: The subject.
        tasks: Those of the cluster that train.
        deadline: Of all of these jobs.

    Returns:
        What the reference answers, and a function that waits for the cluster.

    Raises:
        BadInputError: The subject fails on one device already.
        ClusterError: The bench's own part failed.
    """
    if scenario.workload == PIPELINE:
        # One device trains on what the replicas got.
        cluster.call("read", payload, timeout_s=deadline.left_s, tasks=tasks)
    wait_prepared = cluster.submit(
        "prepare", payload, timeout_s=deadline.left_s, tasks=tasks
    )
    return one.make_reference(payload, target, timeout_s=deadline.left_s), wait_prepared
