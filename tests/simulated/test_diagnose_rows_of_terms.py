"""A penalty on the rows that a replica looks up, which others look up as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import to_array
from training_simulator import TABLE, Fault, Setup, Simulation, observe

from distbench.diagnose.judge import judge
from distbench.trace import WHOLE

SETUP = {"replicas": 3, "sparse": False, "shards_known": False, "steps": 2}
PULL = Simulation(Setup(**SETUP)).initial[TABLE]
"""The gradient of the penalty, of all rows."""


def count(*times):
    """The evidence of a run in which the rows of the table count so many times."""
    more = (np.resize(times, len(PULL))[:, None] - 1).astype(np.float32) * PULL

    def change(gradients, replica, step):
        del step
        wrong = to_array(gradients[TABLE]) + more
        return {**gradients, TABLE: wrong} if replica == 1 else gradients

    evidence = observe(Fault(local=change), **SETUP)
    whole = dict(evidence.reference.select(phase="local_gradient", replica=WHOLE))
    pull = {
        k: PULL if k.variable == TABLE else 0 * to_array(v) for k, v in whole.items()
    }
    rest = {k: np.float32(to_array(v) - pull[k]) for k, v in whole.items()}
    terms = tuple(replace(evidence.reference, values=found) for found in (rest, pull))
    return replace(evidence, terms=terms)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ((1, 1 / 3, 2 / 3), "1/N = 1/3 of what it should for each replica"),
        ((3, 1, 2), "once for each replica"),
        ((1, 0, 1), "looks at the rows of a replica's own examples"),
    ],
    ids=["of-a-share", "in-full", "of-none"],
)
def test_a_penalty_that_counts_for_each_replica_with_the_row_is_told(times, words):
    first = judge(count(*times)).findings[0]
    assert first.code == "regularizer-not-scaled", first.explanation
    assert first.variables[-1] == TABLE
    assert first.confidence > 0.999
    assert words in first.explanation


@pytest.mark.parametrize("times", [(1, 0.4, 0.8), (1, 4, 2), (2, 2, 2)], ids=str)
def test_what_no_numbers_of_replicas_give_is_not_told_so(times):
    findings = judge(count(*times)).findings
    assert findings
    assert all("own examples alone" not in f.explanation for f in findings)
