"""Of several variables that are wrong in a step, the one that leads comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hidden_sums import hide_sums
from judged_runs import MEAN
from training_simulator import TRAINED, Fault, observe

from distbench.diagnose.judge import judge

LISTED = tuple(v.path for v in observe().reference.variables if v.path in TRAINED)


@pytest.mark.parametrize(
    ("written", "order"),
    [
        ((), LISTED),
        (LISTED[:0:-1], (*LISTED[:0:-1], LISTED[0])),
        (LISTED[::-1], LISTED[::-1]),
    ],
    ids=["not-known", "some", "all"],
)
def test_what_a_step_assigns_to_first_is_named_first(
    written: tuple[str, ...], order: tuple[str, ...]
) -> None:
    evidence = hide_sums(observe(Fault(reduce=MEAN), replicas=3, shards_known=False))
    notes = {**evidence.observed.notes, "written": list(written)}
    observed = replace(evidence.observed, notes=notes)
    first = judge(replace(evidence, observed=observed)).findings[0]
    assert (first.phase, first.variables) == ("variable", order)


def test_gradients_are_named_as_the_program_lists_its_variables() -> None:
    evidence = observe(Fault(reduce=MEAN), replicas=3)
    notes = {**evidence.observed.notes, "written": list(LISTED[::-1])}
    observed = replace(evidence.observed, notes=notes)
    first = judge(replace(evidence, observed=observed)).findings[0]
    assert (first.phase, first.variables) == ("reduced_gradient", LISTED)
