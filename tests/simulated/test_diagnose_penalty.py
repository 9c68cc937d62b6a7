"""A penalty on a variable that no example reaches."""

from __future__ import annotations

import numpy as np
import pytest
from training_simulator import KERNEL, TRAINED, Fault, Setup, Simulation

from distbench.diagnose.judge import judge


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
