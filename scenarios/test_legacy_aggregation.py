"""Would catch an aggregator that is switched off with the sum, or that clips too early.

https://github.com/LeelaChessZero/lczero-training/pull/162 moved a clip behind the
aggregator; https://github.com/keras-team/keras/pull/15021 would have the user call it,
where the flag keeps the optimizer from doing so.
"""

from __future__ import annotations

import pytest


@pytest.mark.programs("aggregating.py", "SumsThenClips", "SumsInATransformer")
def test_transformers_follow_the_aggregator(check):
    check().raise_for_status()


@pytest.mark.programs("aggregating.py", "ClipsInTheAggregator")
def test_a_transformation_in_the_aggregator_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("clip-before-reduction", "reduced_gradient")


@pytest.mark.programs("aggregating.py", "AggregatorSwitchedOff")
def test_an_aggregator_that_never_runs_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("missing-reduction", "reduced_gradient")


@pytest.mark.programs("aggregating.py", "TransformerSumsAgain")
def test_a_sum_among_the_transformers_is_found(diagnose):
    first = diagnose()[0]
    assert (first.phase, first.replicas) == ("applied_gradient", (0, 1))
    assert first.ratio == pytest.approx(2.0, rel=1e-3)
