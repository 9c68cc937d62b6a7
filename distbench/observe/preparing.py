"""What comes before a cluster trains: its subject is built, and the reference made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from distbench.launch.failure import TaskFailedError
from distbench.observe.errand import Errand
from distbench.observe.one_device import OneDevice
from distbench.observe.trainers import Trainers, start_trainers
from distbench.scenario.choices import PIPELINE


@contextmanager
def start_both(errand: Errand) -> Iterator[tuple[OneDevice, Trainers]]:
    """Start one device and a cluster for a run alone; both are ended behind it."""
    with (
        closing(OneDevice(errand.launch)) as one,
        one.serve(errand),
        start_trainers(errand) as trainers,
    ):
        yield one, trainers


def prepare_both(
    one: OneDevice, trainers: Trainers, errand: Errand, payload: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Callable[[], object]]:
    """Build a subject and trace its step on a cluster, and have its reference made.

    Building and tracing needs no reference, so both go on at once. What fails on one
    device already is said of that, not of the cluster.

    Args:
        one: Makes the reference, or has made it for another cluster.
        trainers: The tasks of the cluster that train.
        errand: What is run.
        payload: Of all of these jobs.

    Returns:
        What the reference answers, and a function that waits for the cluster.

    Raises:
        BadInputError: The subject fails on one device already.
        ClusterError: The bench's own part failed.
    """
    if errand.scenario.workload == PIPELINE:
        # One device trains on what the replicas got.
        try:
            trainers.call("read", payload)
        except TaskFailedError as error:
            if error.kind == "subject":
                one.read_alone(errand, payload)
            raise
    wait_prepared = trainers.submit("prepare", payload)
    answer = one.make_reference(errand, payload)
    return answer, wait_prepared
