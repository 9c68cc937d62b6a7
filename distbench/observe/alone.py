"""The cluster once more, without the bench's own code amid the subject's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distbench.launch.failure import TaskFailedError
from distbench.observe.errand import Errand
from distbench.observe.trainers import start_trainers

_OF_SUBJECT = ("subject", "input", "collective")


def find_own_failure(
    error: TaskFailedError, errand: Errand, payload: Mapping[str, Any]
) -> TaskFailedError:
    """The subject's own failure, where the bench's code raised amid the subject's.

    That may be a bug of the bench. It may as well be a wrong argument, which the bench
    took in TensorFlow's place: then the subject fails without the bench, too.

    Args:
        error: What was raised.
        errand: What was run.
        payload: Of its jobs.

    Returns:
        What the subject raised without the bench, or else what was raised before.
    """
    if error.kind != "observer":
        return error
    train = "train" if errand.scenario.in_flight == 1 else "fly"
    try:
        with start_trainers(errand) as trainers:
            for job in errand.list_jobs(train):
                trainers.call(job, {**payload, "alone": True})
    except TaskFailedError as failure:
        if failure.kind not in _OF_SUBJECT:
            return error
        # Without taps no phase is told but the first.
        failure.phase = error.phase or failure.phase
        return failure
    return error
