"""Would catch a `minimize` whose gradients are summed before it sums them itself.

https://github.com/horovod/horovod/pull/1347 moved the sum from one of its three steps
to another and back: who processes gradients between them gets summed ones or not.
"""

from __future__ import annotations

import pytest


@pytest.mark.programs(
    "minimizing.py",
    "FunctionOfTheLoss",
    clusters=["central:2"],
    kinds=["mirrored", "mwms", "central", "ps"],
)
def test_loss_and_variables_may_be_functions(check):
    check().raise_for_status()


@pytest.mark.programs("minimizing.py", "TapeOfTheLoss", clusters=["mirrored:2"])
def test_loss_may_be_a_tensor_with_its_tape(check):
    check().raise_for_status()


@pytest.mark.programs("minimizing.py", "ThreeSteps")
def test_gradients_are_processed_between_the_steps(check):
    check().raise_for_status()


@pytest.mark.programs("minimizing.py", "ProcessedTooEarly")
def test_processing_before_the_sum_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("clip-before-reduction", "reduced_gradient")


@pytest.mark.programs("minimizing.py", "SummedBeforeMinimizeSums")
def test_a_sum_in_the_first_step_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("double-reduction", "reduced_gradient")


@pytest.mark.programs("minimizing.py", "LossSummedInTheTape")
def test_a_sum_under_the_tape_is_found(diagnose, replicas):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("loss-not-scaled", "loss")
    assert first.ratio == pytest.approx(replicas, rel=1e-3)
