"""What is not compared or explained, because nothing could come of it."""

from __future__ import annotations

import pytest
from grouped_losses import Compute, against_the_others, by_statistics
from grouped_training import Simulator, lose_sum

from distbench.compare.arrays.noise import Noise
from distbench.compare.comparison import Judged, compare_evidence
from distbench.diagnose.judge import judge
from distbench.diagnose.stages.chain import explain_chain
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.verdict import Finding, Status


@pytest.mark.parametrize(
    "compute", [by_statistics, against_the_others], ids=["known", "unknown"]
)
def test_nothing_explains_a_whole_batch_that_is_no_measure(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large model that takes longer than all the rest."""
    asked = []

    def count(_: Evidence, chain: Chain) -> tuple[Finding, ...]:
        asked.append(chain.broken)
        return ()

    monkeypatch.setattr("distbench.diagnose.readings.weighed.explain_chain", count)
    assert judge(Simulator(compute).make_evidence()).status is Status.PASS
    assert asked == [()]


def test_a_whole_batch_with_wrong_losses_is_compared_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []

    def compare(evidence: Evidence, noise: Noise) -> tuple[Judged, ...]:
        compared.append(evidence.measure.shards_known)
        return compare_evidence(evidence, noise)

    monkeypatch.setattr("distbench.diagnose.readings.weighed.compare_evidence", compare)
    assert judge(Simulator(by_statistics).make_evidence()).status is Status.PASS
    assert compared == [True]


@pytest.mark.parametrize(
    ("simulator", "count"),
    [
        (Simulator(by_statistics, reduce=lose_sum), 1),
        # The shards, their sum, and the whole batch for what that says of it.
        (Simulator(by_statistics, lambda *_: 1.3), 3),
    ],
    ids=["behind-the-parts", "in-the-parts"],
)
def test_a_reading_that_could_add_nothing_is_not_explained(
    simulator: Simulator, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no shard has wrong, no sum of shards has; what is named, stays named."""
    asked = []

    def explain(evidence: Evidence, chain: Chain) -> tuple[Finding, ...]:
        asked.append(evidence)
        return explain_chain(evidence, chain)

    monkeypatch.setattr("distbench.diagnose.readings.weighed.explain_chain", explain)
    assert judge(simulator.make_evidence()).status is Status.FAIL
    assert len(asked) == count
