"""Workers that wait for each other: which step, who waits, and why."""

from __future__ import annotations

import re

import numpy as np
import pytest

from distbench.checking.stuck import find_overflowing, make_mismatch, read_parts
from distbench.cluster import ClusterSpec, Task
from distbench.launch.failure import TaskFailedError
from distbench.trace import SparseRows, Trace, TraceKey
from distbench.trace.files import write_trace

SPEC = ClusterSpec.parse("mwms:2@cpu")
FAILURE = TaskFailedError(
    "late",
    task=Task(role="worker", index=1),
    kind="collective",
    message="cond/CollectiveReduceV2",
    step=2,
)


def make_part(replica: int, *gradients: float) -> Trace:
    """A part with a gradient for each finished step."""
    values = {
        TraceKey(step=step, phase="local_gradient", variable="w", replica=replica): (
            SparseRows(
                indices=np.array([1], np.int64),
                values=np.full((1, 2), gradient, np.float32),
                shape=(3, 2),
            )
        )
        for step, gradient in enumerate(gradients)
    }
    return Trace(name="part", replicas=2, shards=(1, 1), variables=(), values=values)


@pytest.mark.parametrize(
    ("parts", "step", "words"),
    [
        (
            (make_part(0, 1.0), make_part(1, 1.0, np.inf)),
            1,
            r"Step 1.*worker-0 waits.*gradients of replica 1 alone overflowed",
        ),
        (
            (make_part(0, 1.0, 1.0), make_part(1, 1.0)),
            1,
            r"Step 1.*worker-1 waits.*others do not come\. The first",
        ),
        ((None, None), 0, r"Step 0.*different collectives\. The first"),
    ],
    ids=["overflow", "other-way", "same-step"],
)
def test_who_has_finished_fewest_steps_waits(parts, step, words):
    found = make_mismatch(FAILURE, SPEC, parts)
    assert (found.code, found.step, found.replicas) == (
        "collective-mismatch",
        step,
        (0, 1),
    )
    assert "'cond/CollectiveReduceV2'" in found.explanation
    assert re.search(words, found.explanation), found.explanation


def test_parts_are_those_that_were_written(tmp_path):
    write_trace(make_part(1, np.nan), tmp_path, "partly-bounded-worker-1")
    parts = read_parts(tmp_path, SPEC, "bounded")
    assert parts[0] is None
    assert find_overflowing(parts, 0) == (1,)
    assert find_overflowing(parts, 1) == ()
    assert read_parts(None, SPEC, "bounded") == (None, None)
