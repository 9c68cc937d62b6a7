"""What comes before a cluster trains: its subject is built, and the reference made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.launch.deadline import Deadline
from distbench.launch.failure import TaskFailedError
from distbench.observe.launching import Launch, make_opening
from distbench.observe.one_device import OneDevice
from distbench.observe.trainers import Trainers, start_trainers
from distbench.scenario import Scenario
from distbench.scenario.choices import PIPELINE
from distbench.target import TargetRef


@contextmanager
def start_both(
    launch: Launch, scenario: Scenario, spec: ClusterSpec, deadline: Deadline
) -> Iterator[tuple[OneDevice, Trainers]]:
    """Start one device and a cluster for a run of their own; both are ended behind it.

    Args:
        launch: How tasks are started.
        scenario: What is to be run.
        spec: Its resolved cluster spec.
        deadline: For all jobs together.
    """
    with (
        closing(OneDevice(launch)) as one,
        one.serve(make_opening(scenario, deadline), launch.find_one(spec)),
        start_trainers(launch, scenario, spec, deadline) as trainers,
    ):
        yield one, trainers


def prepare_both(
    one: OneDevice,
    trainers: Trainers,
    scenario: Scenario,
    payload: Mapping[str, Any],
    target: TargetRef,
) -> tuple[Mapping[str, Any], Callable[[], object]]:
    """Build a subject and trace its step on a cluster, and have its reference made.

    Building and tracing needs no reference, so both go on at once. What fails on one
    device already is said of that, not of the cluster.

    Args:
        one: Makes the reference, or has made it for another cluster.
        trainers: The tasks of the cluster that train.
        scenario: What is run.
        payload: Of all of these jobs.
        target: The subject.

    Returns:
        What the reference answers, and a function that waits for the cluster.

    Raises:
        BadInputError: The subject fails on one device already.
        ClusterError: The bench's own part failed.
    """
    if scenario.workload == PIPELINE:
        # One device trains on what the replicas got.
        try:
            trainers.call("read", payload)
        except TaskFailedError as error:
            if error.kind == "subject":
                one.read_alone(payload, target, trainers.deadline)
            raise
    wait_prepared = trainers.submit("prepare", payload)
    answer = one.make_reference(payload, target, trainers.deadline)
    return answer, wait_prepared
