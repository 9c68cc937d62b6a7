"""The cluster once more, without the bench's own code amid the subject's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.launch.deadline import Deadline
from distbench.launch.failure import TaskFailedError
from distbench.observe.launching import Launch
from distbench.observe.trainers import start_trainers
from distbench.scenario import Scenario
from distbench.scenario.choices import PIPELINE

_OF_SUBJECT = ("subject", "input", "collective")


def find_own_failure(
    error: TaskFailedError,
    launch: Launch,
    scenario: Scenario,
    spec: ClusterSpec,
    payload: Mapping[str, Any],
    deadline: Deadline,
) -> TaskFailedError:
    """The subject's own failure, where the bench's code raised amid the subject's.

    That may be a bug of the bench. It may as well be a wrong argument, which the bench
    took in TensorFlow's place: then the subject fails without the bench, too.

    Args:
        error: What was raised.
        launch: How tasks are started.
        scenario: What was run.
        spec: Its resolved cluster spec.
        payload: Of its jobs.
        deadline: That of the scenario.

    Returns:
        What the subject raised without the bench, or else what was raised before.
    """
    if error.kind != "observer":
        return error
    train = "train" if scenario.in_flight == 1 else "fly"
    jobs = ("read",) if scenario.workload == PIPELINE else ()
    try:
        with start_trainers(launch, scenario, spec, deadline) as trainers:
            for job in (*jobs, "prepare", train):
                trainers.call(job, {**payload, "alone": True})
    except TaskFailedError as failure:
        if failure.kind not in _OF_SUBJECT:
            return error
        # Without taps no phase is told but the first.
        failure.phase = error.phase or failure.phase
        return failure
    return error
