"""A deadline that waits for tasks that compute, and not for those that stand still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from agent_support import FolderEngine
from launch_support import FIRST, Starter, open_starter

from distbench.launch.deadline import Deadline
from distbench.launch.engine import Engine
from distbench.launch.failure import TaskFailedError
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory

SHORT_S = 2.0


@pytest.fixture(params=["here", "elsewhere"])
def start(
    request: pytest.FixtureRequest, run_directory: RunDirectory, tmp_path: Path
) -> Iterator[Starter]:
    with ExitStack() as stack:
        engine: Engine = LocalEngine()
        if request.param == "elsewhere":
            engine = stack.enter_context(FolderEngine(tmp_path))
        starter = stack.enter_context(open_starter(run_directory))
        yield lambda: starter("one", engine=engine)


def test_a_task_that_computes_is_waited_for(start: Starter) -> None:
    group, deadline = start(), Deadline(SHORT_S, patience=100.0)
    group.call("compute", {"seconds": 1.5 * SHORT_S}, deadline=deadline)
    assert deadline.spent_s > SHORT_S


def test_a_task_that_stands_still_is_not(start: Starter) -> None:
    group = start()
    with pytest.raises(TaskFailedError, match="deadline of 2 s") as caught:
        group.call("wait", {}, deadline=Deadline(SHORT_S, patience=1000.0))
    assert (caught.value.kind, caught.value.task) == ("timeout", FIRST)
