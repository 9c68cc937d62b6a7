"""Judging programs whose replicas weigh their losses by what all of them count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exchanging import Exchanging, note
from grouped_losses import SHARDS, Shards, by_statistics, mean_by_statistics
from grouped_training import Simulator

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey, Value
from distbench.verdict import Status

COUNTED = (0.5, 0.3, 0.2)
"""What the shards hold of what is counted; their sizes say something else."""


def by_count(replica: int, _: Shards) -> float:
    return COUNTED[replica]


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("times", "code"), [(1.0, ""), (1 / 3, "loss-scaled-twice"), (3, "loss-not-scaled")]
)
def test_shards_may_weigh_what_all_replicas_count(times: float, code: str) -> None:
    simulator = Simulator(mean_by_statistics, lambda r, s: times * by_count(r, s))
    evidence = simulator.make_evidence()
    assert judge(note(evidence, "")).status is Status.FAIL
    judgement = judge(note(evidence, "data"))
    found = [(finding.code, finding.phase) for finding in judgement.findings]
    assert found == ([(code, "loss")] if code else []), judgement


def give_exchanged(
    evidence: Evidence, *, makes_whole: bool, steps: int = 3
) -> Evidence:
    """With shards that were given what the global batch exchanges.

    Args:
        evidence: Of a program whose shards alone do not make up the global batch.
        makes_whole: Whether they do so now; else what they are given changes nothing.
        steps: In how many steps they were given it.
    """
    reference, regrouped = evidence.reference, evidence.probes["regrouped"]
    if makes_whole:
        whole = [
            (key, np.asarray(value))
            for key, value in reference.select(replica=WHOLE)
            if key.phase in COMPUTED
        ]
        shares = [
            {
                key.at(replica): np.asarray(share * value, value.dtype)
                for key, value in whole
                for replica, share in enumerate(of_shards)
            }
            for of_shards in (COUNTED, COUNTED[::-1])
        ]
        reference, regrouped = (replace(reference, values=v) for v in shares)
    early = {k: v for k, v in reference.values.items() if k.step < steps}
    reference = replace(reference, values=early)
    given = {"exchanged": reference, "exchanged-regrouped": regrouped}
    return replace(evidence, probes={**evidence.probes, **given})


def test_steps_in_which_nothing_was_given_say_nothing() -> None:
    """Their shards alone do not make up the global batch, whatever those given do."""
    wrong = note(Exchanging(bent=slice(None), off=1.02).make_evidence(), "data")
    wrong = give_exchanged(wrong, makes_whole=True, steps=1)
    assert judge(wrong).status is Status.FAIL


def test_shards_that_are_given_all_may_come_to_depend_on_groups_later() -> None:
    """As gradients of two tasks do that come to be at odds within a shard."""
    wrong = note(Exchanging(bent=slice(None), off=1.02).make_evidence(), "data")
    given = give_exchanged(wrong, makes_whole=True)
    of_shards = give_exchanged(wrong, makes_whole=False).probes["exchanged"].values
    later = {key: value for key, value in of_shards.items() if key.step > 0}
    probe = given.probes["exchanged"]
    probe = replace(probe, values={**probe.values, **later})
    given = replace(given, probes={**given.probes, "exchanged": probe})
    assert judge(given).status is Status.PASS


def test_what_shards_lack_of_all_counts_makes_the_global_batch_their_measure() -> None:
    """Soft targets that follow from frequencies of all, say, or a limit."""
    wrong = note(Exchanging(bent=slice(None), off=1.02).make_evidence(), "data")
    assert judge(wrong).status is Status.PASS
    assert judge(give_exchanged(wrong, makes_whole=False)).status is Status.PASS
    (finding,) = judge(give_exchanged(wrong, makes_whole=True)).findings
    assert (finding.code, finding.phase) == ("unexplained", "loss")
    assert "made of what the others computed" in finding.explanation
    right = note(Exchanging().make_evidence(), "data")
    assert judge(give_exchanged(right, makes_whole=True)).status is Status.PASS


def give_terms(evidence: Evidence, *, doubled: bool) -> Evidence:
    """With shards of which a part is a mean, given what the global batch exchanges.

    Args:
        evidence: Of a program whose shards alone do not make up the global batch.
        doubled: Whether one device has them with each example twice as well.
    """
    reference = evidence.reference
    whole = [
        (key, np.asarray(value))
        for key, value in reference.select(step=0, replica=WHOLE)
        if key.phase in COMPUTED
    ]

    def make(counted: tuple[float, ...], means: tuple[float, ...], times: int) -> Trace:
        """Another mean than a share of all for each shard."""
        values: dict[TraceKey, Value] = {}
        for key, value in whole:
            parts = [mean * np.roll(value, r) ** 2 for r, mean in enumerate(means)]
            shares = [n / sum(SHARDS) for n in SHARDS]
            total = value - sum(n * part for n, part in zip(shares, parts, strict=True))
            for r, part in enumerate(parts):
                values[key.at(r)] = np.float32(times * counted[r] * total + part)
        return replace(reference, values=values)

    means = (0.1, 0.2, 0.5)
    given = {
        "exchanged": make(COUNTED, means, 1),
        "exchanged-regrouped": make(COUNTED[::-1], means[::-1], 1),
    }
    if doubled:
        given["exchanged-doubled"] = make(COUNTED, means, 2)
    return replace(evidence, probes={**evidence.probes, **given})


def test_a_mean_beside_what_all_count_hides_no_mistake_in_it() -> None:
    """Twice as many examples tell which part of a shard's loss is one."""
    wrong = note(Exchanging(bent=slice(None), off=1.02).make_evidence(), "data")
    assert judge(give_terms(wrong, doubled=False)).status is Status.PASS
    (finding,) = judge(give_terms(wrong, doubled=True)).findings
    assert (finding.code, finding.phase) == ("unexplained", "loss")
    right = note(Exchanging().make_evidence(), "data")
    assert judge(give_terms(right, doubled=True)).status is Status.PASS


def test_a_count_does_not_show_that_statistics_of_shards_are_wrong() -> None:
    evidence = note(Simulator(by_statistics).make_evidence(), "data")
    evidence = give_exchanged(evidence, makes_whole=False)
    assert judge(evidence).status is Status.PASS


def test_a_mean_of_means_counts_nothing() -> None:
    simulator = Simulator(mean_by_statistics, lambda *_: 1 / len(SHARDS))
    judgement = judge(note(simulator.make_evidence(), "data"))
    assert judgement.findings[0].code == "mean-of-means"
