"""Would catch an aggregator that is switched off, or a second sum after it.

https://github.com/keras-team/keras/pull/15021 would have the user call the aggregator,
where the flag keeps the optimizer from doing so;
https://github.com/LeelaChessZero/lczero-training/pull/162 put a clip behind it.
"""

from __future__ import annotations

import pytest


@pytest.mark.programs("aggregating.py", "SumsThenClips", "SumsInATransformer")
def test_transformers_follow_the_aggregator(check):
    check().raise_for_status()


@pytest.mark.programs("aggregating.py", "AggregatorSwitchedOff")
def test_an_aggregator_that_never_runs_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("missing-reduction", "reduced_gradient")


@pytest.mark.programs("aggregating.py", "TransformerSumsAgain")
def test_a_sum_among_the_transformers_is_found(diagnose, replicas):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("double-reduction", "applied_gradient")
    assert first.ratio == pytest.approx(replicas, rel=1e-3)
