"""State that a step makes of its losses, beside a loss that is wrong."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from verdict_samples import make_finding

from distbench.diagnose.stages.of_losses import leave_out_of_losses

LOSS = make_finding(code="loss-not-scaled", phase="loss", variable="", variables=("",))
BEST = replace(LOSS, code="statistics-not-synchronized", phase="variable")
BEST = replace(BEST, variable="best", variables=("best",))


def list_left(*findings, shows=True, step=0, made=("best",)):
    """The codes that are left of some findings, where the loss of a step is wrong."""
    evidence = SimpleNamespace(
        observed=SimpleNamespace(notes={"of_losses": list(made)}), sees_gradients=shows
    )
    broken = [SimpleNamespace(comparison=SimpleNamespace(phase="loss", step=step))]
    return [f.code for f in leave_out_of_losses(evidence, broken, findings)]


def test_state_that_is_made_of_a_wrong_loss_is_not_told_beside_it():
    assert list_left(LOSS, BEST) == ["loss-not-scaled"]


@pytest.mark.parametrize(
    ("first", "made", "step"),
    [
        (replace(LOSS, code="unexplained"), ("best",), 0),
        (LOSS, ("other",), 0),
        (LOSS, ("best",), 1),
    ],
    ids=["no-cause", "not-made-of-it", "another-step"],
)
def test_other_state_is_told(first, made, step):
    assert len(list_left(first, BEST, made=made, step=step)) == 2


@pytest.mark.parametrize(
    ("code", "left"), [("double-reduction", 1), ("missing-reduction", 2)]
)
def test_where_no_gradient_shows_all_that_trains_is_made_of_the_loss(code, left):
    moved = replace(BEST, code=code, variables=("kernel", "moved"))
    assert len(list_left(LOSS, moved, shows=False)) == left
    assert len(list_left(LOSS, moved)) == 2
