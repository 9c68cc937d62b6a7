"""A handful of faults that are drawn at random, and one correct program.

`distbench selftest --random COUNT` runs as many as one likes.
"""

from __future__ import annotations

import pytest

from distbench.selftest.drawn import Seeds, is_right, plan_drawn
from distbench.selftest.run import run_selftest

# What they show is shown by shorter tests as well.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


# All were missed or named wrong once: a single number that is sent in fewer bits,
# programs that one device takes to depend on grouping or on a narrow dtype, the moving
# mean of one that does, and noise on the first of two replicas.
@pytest.mark.parametrize("seed", [3004, 3028, 3035, 5005, 6036])
def test_a_drawn_fault_is_found_and_named(seed: int) -> None:
    fault, _ = plan_drawn(Seeds(first=seed, count=1))
    (cell,) = run_selftest([fault]).faults
    assert is_right(cell), (cell.found, cell.explanation)


def test_a_drawn_program_passes() -> None:
    _, clean = plan_drawn(Seeds(first=3, count=1))
    (passed,) = run_selftest([clean]).unusual
    assert is_right(passed), passed.found
