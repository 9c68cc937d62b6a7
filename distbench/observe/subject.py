"""What a subject is, and what it means that it fails on one device."""

from __future__ import annotations

from distbench.errors import BadInputError, ClusterError
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group
from distbench.observe.launching import OPEN_S
from distbench.target import TargetRef, target_to_json


def describe_subject(target: TargetRef, one: Group) -> tuple[str, bool]:
    """Load the subject in a single-device task and say what kind it is.

    Returns:
        The kind, and whether the task has run nothing of the subject but its import,
        so that a reference may be computed in it.
    """
    try:
        answers = one.call(
            "describe", {"target": target_to_json(target)}, timeout_s=OPEN_S
        )
    except TaskFailedError as error:
        raise translate_failure(error, target) from error
    answer = next(iter(answers.values()))
    return str(answer["kind"]), bool(answer["is_fresh"])


def translate_failure(error: TaskFailedError, target: TargetRef) -> Exception:
    """Say what a failure on one device means: the input's or the bench's."""
    if error.kind == "input":
        return BadInputError(error.message)
    if error.kind == "subject":
        where = f" in {error.phase}" if error.phase else ""
        return BadInputError(
            f"Subject '{target.describe()}' fails on one device already{where}: "
            f"{error.exception}: {error.message.rstrip('.')}. A cluster can only be "
            "compared with a single-device run that works."
        )
    return ClusterError(str(error), detail=error.detail)
