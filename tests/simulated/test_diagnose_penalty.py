"""A penalty on a variable that no example reaches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from training_simulator import KERNEL, TRAINED, Fault, Setup, Simulation

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence


@pytest.mark.parametrize("known", [True, False], ids=["shards-known", "program"])
@pytest.mark.parametrize(
    ("summed_first", "code", "variables"),
    [
        (False, "regularizer-not-scaled", (KERNEL,)),
        (True, "double-reduction", tuple(p for p in TRAINED if p != "head/gain")),
    ],
    ids=["whole-penalty", "summed-twice"],
)
def test_what_only_the_penalty_reaches_is_told_from_a_sum_of_sums(
    summed_first: bool, code: str, variables: tuple[str, ...], known: bool
) -> None:
    """The whole penalty is all that there is to sum of it."""
    setup = Setup(penalty=0.25, shards_known=known, summed_first=summed_first)
    run = Simulation(setup)
    run.batches = [(np.zeros_like(x), ids, y) for x, ids, y in run.batches]
    part = 1 / setup.replicas if summed_first else 1.0
    (finding,) = judge(run.observe(Fault(penalty=lambda r, s: part))).findings
    assert (finding.code, finding.variables) == (code, variables)
    assert finding.phase == "local_gradient"


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_a_penalty_of_another_weight_is_told_of_a_single_replica(times: float) -> None:
    """As where each worker of parameter servers has a share of it."""
    setup = Setup(replicas=1, shards=(16,), penalty=0.25, shards_known=False)
    evidence = Simulation(setup).observe(Fault(penalty=lambda r, s: times))
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.variables) == ("regularizer-not-scaled", (KERNEL,))
    assert "num_replicas_in_sync" not in finding.explanation


@pytest.mark.parametrize(
    ("part", "words", "advice"),
    [
        (1.0, "counts 2 times in place of once", "by num_replicas_in_sync"),
        (1 / 4, "counts 0.5 times in place of once", "no more than once"),
        (0.0, "is left out", "no more than once"),
    ],
)
def test_how_often_a_penalty_counts_is_told_by_what_shards_alone_have(
    part: float, words: str, advice: str
) -> None:
    """In a sum, which is all that is held against one device's here."""
    setup = Setup(penalty=0.25, loss_reduction="sum")
    evidence = Simulation(setup).observe(Fault(penalty=lambda r, s: part))
    (finding,) = judge(let_shards_have_all(evidence, setup)).findings
    assert finding.code == "regularizer-not-scaled"
    assert words in finding.explanation
    assert advice in finding.explanation


def let_shards_have_all(evidence: Evidence, setup: Setup) -> Evidence:
    """The same of a program's own loop: each shard alone has the penalty in full."""
    values = dict(evidence.reference.values)
    for key in [k for k in values if k.replica >= 0 and k.variable == KERNEL]:
        if key.phase == "local_gradient":
            theta = evidence.get_before(key.step, "variable", KERNEL)
            rest = (1 - 1 / setup.replicas) * setup.penalty * np.asarray(theta)
            values[key] = np.asarray(values[key] + rest, np.float32)
    return replace(
        evidence,
        penalty=None,
        reference=replace(evidence.reference, values=values),
        measure=replace(evidence.measure, shards_known=False),
    )
