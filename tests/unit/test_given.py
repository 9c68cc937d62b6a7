"""From which state of its own a run starts that goes on by itself."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.worker.taps.given import select_free_start

WHOLE_VALUE = np.array([6.0, -3.0], np.float32)


def select(copies: list[float], *, trainable: bool = False, due: float = 1.0) -> object:
    """What a variable is set to, of which replicas begin with so much of 6 and -3."""
    info = VariableInfo(
        path="kept", role="variable", shape=(2,), dtype="float32", trainable=trainable
    )
    key = TraceKey(step=INITIAL, phase="variable", variable="kept", replica=WHOLE)
    reference = Trace(
        name="reference",
        replicas=1,
        shards=(6,),
        variables=(info,),
        values={key: np.float32(due) * WHOLE_VALUE},
    )
    held = {
        ("kept", place): np.float32(part) * WHOLE_VALUE
        for place, part in enumerate(copies)
    }
    return select_free_start(reference, held, 3).get("kept")


@pytest.mark.parametrize("part", [1 / 3, 3.0], ids=["share", "times"])
def test_state_that_begins_in_other_units_is_left(part: float) -> None:
    assert select([part, part]) is None


@pytest.mark.parametrize(
    ("copies", "trainable"),
    [
        ([1.0, 1.0], False),
        ([1 / 2, 1 / 2], False),
        ([1 / 3, 1.0], False),
        ([3.0, 1 / 3], False),
        ([1 / 3, 1 / 3], True),
    ],
    ids=["equal", "half", "one-copy", "two-units", "trained"],
)
def test_anything_else_starts_from_one_device(
    copies: list[float], trainable: bool
) -> None:
    assert np.array_equal(select(copies, trainable=trainable), WHOLE_VALUE)


def test_what_begins_with_nothing_has_no_unit() -> None:
    assert np.array_equal(select([0.0, 0.0], due=0.0), np.zeros(2))
    assert np.array_equal(select([1.0, 1.0], due=0.0), np.zeros(2))
