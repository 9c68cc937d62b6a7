"""Would catch constraints that an update of one's own leaves out.

https://github.com/tensorflow/tensorflow/issues/33755: the gradient of an embedding is
sparse, and then a constraint is refused.
"""

from __future__ import annotations

import pytest

from distbench.errors import BadInputError


@pytest.mark.programs("constraining.py", "DenseTable")
def test_dense_gradients_are_constrained_after_the_update(check):
    check().raise_for_status()


@pytest.mark.programs("constraining.py", "ConstrainedByHand", clusters=["mirrored:2"])
def test_constraint_by_hand_keeps_the_copies_equal(check):
    check().raise_for_status()


@pytest.mark.programs(
    "constraining.py", "ConstrainedByHand", clusters=["central:2"], kinds=["central"]
)
def test_constraint_by_hand_of_a_shared_variable_raises(diagnose):
    (finding,) = diagnose()
    assert finding.code == "raises"
    assert "aggregation method to update a AggregatingVariable" in finding.explanation


@pytest.mark.programs("constraining.py", "ConstraintForgotten")
def test_a_forgotten_constraint_is_found(diagnose):
    first = diagnose()[0]
    assert (first.phase, first.variables) == ("variable", ("kernel",))


@pytest.mark.programs("constraining.py", "ConstrainedTable")
def test_sparse_gradients_with_a_constraint_are_one_clear_error(check):
    words = "one device already.*Cannot use a constraint function on a sparse variable"
    with pytest.raises(BadInputError, match=words):
        check()
