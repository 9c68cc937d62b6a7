"""Would catch gradients applied where there is no single replica to apply them.

https://github.com/tensorflow/tensorflow/pull/36955 made it a clear error.
"""

from __future__ import annotations

import pytest

WORDS = "RuntimeError: `apply_gradients() cannot be called in cross-replica context"


@pytest.mark.programs("cross_replica.py", "AppliedInMergeCall")
def test_apply_gradients_of_merged_replicas_raises(diagnose):
    (finding,) = diagnose()
    assert finding.code == "raises"
    assert WORDS in finding.explanation


@pytest.mark.programs(
    "cross_replica.py", "AppliedBetweenSteps", clusters=["mirrored:2"]
)
def test_apply_gradients_outside_of_the_step_raises(diagnose):
    (finding,) = diagnose()
    assert (finding.code, finding.phase) == ("raises", "before_step")
    assert WORDS in finding.explanation
