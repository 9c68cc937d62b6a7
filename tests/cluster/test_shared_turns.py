"""Replicas that update by turns what they share."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def test_turns_are_proven_where_the_loop_sets_a_rate() -> None:
    """Nothing but the missing sum, and what follows from it, is told."""
    verdict = distbench.check(
        "distbench.faults.v1:V1NobodySumsUnderScheduleOfLoop",
        "central:2",
        tier="bounded",
    )
    codes = [finding.code for finding in verdict.findings]
    assert codes == ["missing-reduction", "slot-repeated"]
