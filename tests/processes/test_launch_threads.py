"""Threads that an import leaves behind: which of them may be forked away from."""

from __future__ import annotations

import pytest
from launch_support import PRELOAD, TIMEOUT_S, Starter

from distbench.errors import ClusterError

THREADED = (*PRELOAD, "launch_named_threads")


@pytest.mark.parametrize(
    ("name", "how"), [("jemalloc_bg_thd", "fork"), ("pool-1", "spawn")]
)
def test_a_thread_of_an_allocator_is_no_reason_to_spawn(
    start: Starter, name: str, how: str
) -> None:
    told: list[str] = []
    group = start(
        "mwms:1",
        preload=THREADED,
        environment={"LAUNCH_THREAD": name},
        log=told.append,
    )
    results = group.call("echo", {"x": 1}, deadline=TIMEOUT_S)
    assert [result["x"] for result in results.values()] == [1]
    said = f"2 threads after the imports (python, {name}), and a fork needs one"
    assert [said in line for line in told] == [True] * (how == "spawn")


def test_a_fork_that_is_asked_for_is_refused(start: Starter) -> None:
    with pytest.raises(ClusterError, match=r"fork needs one\. Use start='spawn'"):
        start(
            "mwms:1",
            preload=THREADED,
            environment={"LAUNCH_THREAD": "pool-1"},
            start="fork",
        )
