"""A CUDA driver that was initialised before the fork: tasks are spawned instead."""

from __future__ import annotations

from pathlib import Path

import cuda_stand_in
import pytest
from launch_support import PRELOAD, TIMEOUT_S, Starter

from distbench.errors import ClusterError

pytestmark = pytest.mark.skipif(
    bool(cuda_stand_in.find_lack()), reason=cuda_stand_in.find_lack()
)
TOUCHED = (*PRELOAD, "launch_driver_toucher")


@pytest.mark.parametrize(
    ("preload", "how"),
    [(PRELOAD, "fork"), (TOUCHED, "spawn")],
    ids=["untouched", "touched"],
)
def test_tasks_are_spawned_where_an_import_touches_the_driver(
    start: Starter, tmp_path: Path, preload: tuple[str, ...], how: str
) -> None:
    variables = cuda_stand_in.compile_stand_in(tmp_path)
    told: list[str] = []
    group = start("mwms:1", preload=preload, environment=variables, log=told.append)
    results = group.call("echo", {"x": 1}, deadline=TIMEOUT_S)
    assert [result["x"] for result in results.values()] == [1]
    assert cuda_stand_in.was_initialised(variables) == (how == "spawn")
    said = "spawned, which is slower: the fork server says that the CUDA driver was"
    assert [said in line for line in told] == [True] * (how == "spawn")


def test_a_fork_that_is_asked_for_is_refused(start: Starter, tmp_path: Path) -> None:
    variables = cuda_stand_in.compile_stand_in(tmp_path)
    with pytest.raises(ClusterError, match="must not fork: the CUDA driver was"):
        start("mwms:1", preload=TOUCHED, environment=variables, start="fork")
