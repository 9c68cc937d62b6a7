"""What a subject is, and what it means that it fails on one device."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from distbench.errors import BadInputError, ClusterError, ShortEpochError
from distbench.launch.deadline import Deadline
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group
from distbench.target import TargetRef, target_to_json

_TWO_STRATEGIES = re.compile(
    r"(Must not nest|Mixing different) tf\.distribute\.Strategy (scopes|objects)"
)
"""How TensorFlow says that a program is under two strategies."""
_WHY = "A cluster can only be compared with a single-device run that works."
_OWN_STRATEGY = (
    "It has a strategy of its own, and the bench runs it under another one. Make "
    "variables and optimizers where the bench calls you (a factory, or "
    "build(strategy)), and leave scopes of other strategies out; "
    "tf.distribute.get_strategy() is the bench's."
)


class OtherKerasError(Exception):
    """The target sets another Keras, as it is imported, than tasks were started with.

    Attributes:
        keras: Which one: `legacy` or `3`.
    """

    def __init__(self, keras: str) -> None:
        super().__init__(keras)
        self.keras = keras


class ObserverError(ClusterError):
    """The bench's own code raised on one device, amid the subject's."""


def describe_subject(
    target: TargetRef, one: Group, deadline: Deadline
) -> tuple[str, bool]:
    """Load the subject in a single-device task and say what kind it is.

    Args:
        target: The subject.
        one: The task.
        deadline: How long its import may take.

    Returns:
        The kind, and whether the task has run nothing of the subject but its import,
        so that a reference may be computed in it.

    Raises:
        OtherKerasError: It wants tasks that have imported TensorFlow otherwise.
    """
    answer = ask_one(
        one,
        "describe",
        {"target": target_to_json(target)},
        target=target,
        deadline=deadline,
    )
    if "keras" in answer:
        raise OtherKerasError(answer["keras"])
    return str(answer["kind"]), bool(answer["is_fresh"])


def ask_one(
    one: Group,
    job: str,
    payload: Mapping[str, Any],
    *,
    target: TargetRef,
    deadline: Deadline,
) -> Mapping[str, Any]:
    """What a single-device task answers to a job that runs the subject.

    Args:
        one: The task.
        job: Name of the job.
        payload: Its payload.
        target: The subject.
        deadline: How long that may take, after what it has taken before.

    Raises:
        BadInputError: The subject fails on one device already.
        ObserverError: The bench's own code failed amid the subject's.
        ClusterError: The bench's own part failed.
    """
    return submit_one(one, job, payload, target=target, deadline=deadline)()


def submit_one(
    one: Group,
    job: str,
    payload: Mapping[str, Any],
    *,
    target: TargetRef,
    deadline: Deadline,
) -> Callable[[], Mapping[str, Any]]:
    """Have it run such a job, and go on; a function waits for its answer.

    See `ask_one` for the arguments, and for the errors, which the function raises.
    """
    wait = one.submit(job, payload, deadline=deadline)

    def wait_for_one() -> Mapping[str, Any]:
        try:
            return next(iter(wait().values()))
        except TaskFailedError as error:
            raise _translate_failure(error, target) from error

    return wait_for_one


def _translate_failure(error: TaskFailedError, target: TargetRef) -> Exception:
    """Say what a failure on one device means: the input's or the bench's."""
    if error.kind == "input":
        if error.exception == ShortEpochError.__name__ and error.step is not None:
            return ShortEpochError(error.message, error.step)
        return BadInputError(error.message)
    if error.kind == "subject":
        where = f" in {error.phase}" if error.phase else ""
        at = f", at {error.frame}" if error.frame else ""
        mixed = _TWO_STRATEGIES.search(error.message)
        words = mixed[0] if mixed else error.message.rstrip(".")
        return BadInputError(
            f"Subject '{target.describe()}' fails on one device already{where}: "
            f"{error.exception}: {words}{at}. {_OWN_STRATEGY if mixed else _WHY}"
        )
    kind = ObserverError if error.kind == "observer" else ClusterError
    return kind(str(error), detail=error.detail)
