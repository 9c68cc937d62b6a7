"""Which steps tell whether losses are averaged or added up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from training_simulator import Fault, observe

from distbench.compare.nature.averaged_losses import averages_losses
from distbench.evidence import Evidence
from distbench.trace import Trace, Values

_SUM, _MEAN = 1.0, 2.0


def _see(times: float, first_loss: float | None = None) -> Evidence:
    """Losses of two replicas, each so many times its share; undeclared.

    Args:
        times: How many.
        first_loss: What each has in the first step; None leaves it.
    """

    def change(trace: Trace) -> Trace:
        values = {
            key: np.asarray(first_loss * (1 + key.replica), value.dtype)
            if (key.phase, key.step) == ("loss", 0)
            else value
            for key, value in trace.values.items()
        }
        return replace(trace, values=Values(values))

    evidence = observe(Fault(scale=lambda r, setup: times), steps=3, replicas=2)
    evidence = change_evidence(evidence, loss_reduction=None)
    return evidence if first_loss is None else evidence.change_traces(change)


@pytest.mark.parametrize("first_loss", [None, 0.0, 1e-9])
@pytest.mark.parametrize(("times", "is_mean"), [(_SUM, False), (_MEAN, True)])
def test_a_loss_that_is_0_or_rounding_in_the_first_step_tells_nothing(
    times, is_mean, first_loss
):
    assert averages_losses(_see(times, first_loss), 0) is is_mean


def test_a_free_run_is_asked_of_one_step_alone():
    evidence = replace(_see(_MEAN, 0.0), tier="free")
    assert not averages_losses(evidence, 0)
    assert averages_losses(evidence, 1)
