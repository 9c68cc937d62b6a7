"""Workers that wait for each other: which step, who waits, and why."""

from __future__ import annotations

import re

import numpy as np
import pytest

from distbench.checking.stuck import (
    find_overflowing,
    make_mismatch,
    never_meet,
    read_parts,
    read_shards,
)
from distbench.cluster import ClusterSpec
from distbench.launch.failure import TaskFailedError
from distbench.trace import SparseRows, Trace, TraceKey
from distbench.trace.files import write_trace

SPEC = ClusterSpec.parse("mwms:2@cpu")
FIRST, SECOND = SPEC.tasks


def wait_in(number, shape="[2]", *, mismatch=False):
    return {
        "words": f"collective {number}, all_reduce of 'x' (float32 {shape})",
        "number": number,
        "node": "Reduce",
        "shape": shape,
        "shapes": [shape],
        "mismatch": mismatch,
    }


def fail(collectives, waiting=(FIRST, SECOND)):
    return TaskFailedError(
        "late", task=FIRST, kind="timeout", waiting=waiting, collectives=collectives
    )


FAILURE = fail({FIRST: wait_in(7), SECOND: wait_in(8)})


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (FAILURE, True),
        (fail({FIRST: wait_in(7), SECOND: wait_in(7, "[3]")}), True),
        (fail({FIRST: wait_in(7)}, waiting=(FIRST,)), True),
        (fail({FIRST: wait_in(7, mismatch=True)}), True),
        (fail({FIRST: wait_in(7)}), False),
        (fail({FIRST: wait_in(7), SECOND: wait_in(7)}), False),
        (fail({}), False),
    ],
    ids=[
        "numbers",
        "shapes",
        "other-ended",
        "refused",
        "other-may-come",
        "same",
        "nobody-waits",
    ],
)
def test_workers_never_meet_if_none_can_come_to_the_others(failure, expected):
    assert never_meet(failure, SPEC) is expected


@pytest.mark.parametrize("mismatch", [True, False])
def test_replicas_of_one_task_never_meet_if_their_shapes_differ(mismatch):
    spec = ClusterSpec.parse("mirrored:2@cpu")
    failure = fail({FIRST: wait_in(7, mismatch=mismatch)}, waiting=(FIRST,))
    assert never_meet(failure, spec) is mismatch
    told = make_mismatch(failure, spec, (None,)).explanation
    assert "the replicas come to other collectives" in told


@pytest.mark.parametrize(
    ("shapes", "shards", "is_told"),
    [
        (("[40]", "[24]"), (5, 3), True),
        (("[24]", "[40]"), (5, 3), True),
        (("[2, 5]", "[2, 3]"), (5, 3), True),
        (("[40]", "[25]"), (5, 3), False),
        (("[5, 3]", "[3, 5]"), (5, 3), False),
        (("[40]", "[40, 1]"), (5, 3), False),
        (("[40]", "[None]"), (5, 3), False),
        (("[40]", "[40]"), (5, 3), False),
        (("[40]", "[24]"), (4, 4), False),
        (("[40]", "[24]"), (), False),
    ],
)
def test_shapes_that_differ_as_the_shards_do_are_told_with_the_split(
    shapes, shards, is_told
):
    failure = fail(
        {
            task: wait_in(7, shape)
            for task, shape in zip((FIRST, SECOND), shapes, strict=True)
        }
    )
    told = make_mismatch(failure, SPEC, (None, None), shards).explanation
    assert ("'split=(4, 4)'" in told) is is_told
    assert ("which hold 5 and 3 examples" in told) is is_told


def test_shapes_of_the_devices_of_a_task_are_held_against_the_shards():
    spec = ClusterSpec.parse("mirrored:3@cpu")
    wait = {**wait_in(7, mismatch=True), "shapes": ["[10]", "[8]", "[6]"]}
    told = make_mismatch(fail({FIRST: wait}), spec, (None,), (5, 4, 3)).explanation
    assert "which hold 5, 4 and 3 examples" in told
    assert "'split=(4, 4, 4)'" in told


def test_other_collectives_are_no_matter_of_the_split():
    failure = fail({FIRST: wait_in(7, "[40]"), SECOND: wait_in(8, "[24]")})
    assert "split=" not in make_mismatch(failure, SPEC, (None,), (5, 3)).explanation


def test_shards_are_those_of_the_run_on_one_device(tmp_path):
    tiers = ("exact", "bounded")
    assert read_shards(None, tiers) == read_shards(tmp_path, tiers) == ()
    write_trace(make_part(0, 1.0), tmp_path, "reference-bounded")
    assert read_shards(tmp_path, tiers) == (1, 1)


def test_who_has_ended_is_told_apart_from_who_waits():
    ended = fail({FIRST: wait_in(7)}, waiting=(FIRST,))
    found = make_mismatch(ended, SPEC, (None, None))
    assert "worker-0 waits in collective 7" in found.explanation
    assert "worker-1 has ended" in found.explanation


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
            r"Step 1.*worker-1 waits in collective 8, all_reduce of 'x'",
        ),
        ((None, None), 0, r"Step 0.*for ever\. worker-0 waits in collective 7"),
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
    assert re.search(words, found.explanation), found.explanation


def test_parts_are_those_that_were_written(tmp_path):
    """Of the tiers before the last that was begun all steps were finished."""
    write_trace(make_part(0, 1.0), tmp_path, "observed-exact-worker-0")
    write_trace(make_part(1, np.nan), tmp_path, "observed-bounded-worker-1")
    parts = read_parts(tmp_path, SPEC, ("exact", "bounded", "free"))
    assert parts[0] is None
    assert find_overflowing(parts, 0) == (1,)
    assert find_overflowing(parts, 1) == ()
    assert read_parts(None, SPEC, ("bounded",)) == (None, None)
