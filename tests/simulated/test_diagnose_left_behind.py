"""Replicas that go on from state of their own which missed an update."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import Gradients
from own_state import Place, State, add_totals
from training_simulator import KERNEL, Fault, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Finding

_COPY = "copy"
_LATE = (1, 2)


def find_first(wrong: tuple[int, ...], late: tuple[int, ...] = _LATE) -> Finding:
    """What is found where replicas leave their copies as they are in step 0.

    Args:
        wrong: Whose gradients are bent in step 1, by no factor.
        late: Whose copies stay.
    """

    def bend(gradients: Gradients, replica: int, step: int) -> Gradients:
        if step != 1 or replica not in wrong:
            return gradients
        kernel = np.asarray(gradients[KERNEL])
        return {**gradients, KERNEL: kernel + np.abs(kernel) * np.float32(0.1)}

    def follow(state: State, _: np.ndarray, place: Place) -> State:
        is_late = place.replicas > 1 and place.step == 0 and place.replica in late
        return state if is_late else {_COPY: state[_COPY] - np.float32(1.0)}

    seen = observe(Fault(local=bend), replicas=3, steps=3, shards_known=False)
    start = {_COPY: np.arange(4, dtype=np.float32)}
    return judge(add_totals(seen, start, follow)).findings[0]


@pytest.mark.first(2)
def test_replicas_that_start_from_old_copies_are_told_by_them() -> None:
    finding = find_first(wrong=_LATE)
    assert (finding.code, finding.phase) == ("replicas-diverged", "local_gradient")
    assert (finding.step, finding.replicas) == (1, _LATE)
    assert f"'{_COPY}'" in finding.explanation


def test_no_copy_is_told_where_the_wrong_replica_has_a_right_one() -> None:
    assert find_first(wrong=(0,)).code != "replicas-diverged"


def test_no_copy_is_told_where_all_are_right() -> None:
    assert find_first(wrong=_LATE, late=()).code != "replicas-diverged"
