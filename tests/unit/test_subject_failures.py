"""A subject that fails on one device already: whose doing it is, and what to do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distbench.cluster import Task
from distbench.errors import BadInputError
from distbench.launch.deadline import Deadline
from distbench.launch.failure import TaskFailedError
from distbench.observe.subject import ask_one
from distbench.target import TargetRef


def fail_with(message: str):
    """A task whose job ends with an exception of the subject's."""
    task = Task(role="worker", index=0)
    failure = TaskFailedError(
        "failed",
        task=task,
        kind="subject",
        exception="RuntimeError",
        message=message,
        phase="build",
        frame="mine.py:3: make()",
    )

    def wait():
        raise failure

    return SimpleNamespace(submit=lambda *_, **__: wait)


def ask(message: str) -> None:
    target = TargetRef(kind="import", module="mine", attribute="make")
    ask_one(fail_with(message), "reference", {}, target=target, deadline=Deadline(9.0))


def test_a_failure_on_one_device_is_told_with_its_line() -> None:
    words = r"in build: RuntimeError: no data, at mine.py:3: make\(\)\. A cluster can"
    with pytest.raises(BadInputError, match=words):
        ask("no data.")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Must not nest tf.distribute.Strategy scopes.", "scopes"),
        ("Mixing different tf.distribute.Strategy objects: <a> is not <b>", "objects"),
    ],
    ids=["entered", "made-under"],
)
def test_a_strategy_of_the_users_own_is_told_as_one(message: str, told: str) -> None:
    words = rf"Strategy {told}, at mine.py:3: make\(\)\. It has a strategy of its own"
    with pytest.raises(BadInputError, match=words):
        ask(message)
