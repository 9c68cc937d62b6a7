"""State that follows from no gradient that was seen, of steps in a narrower dtype."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from grouped_losses import by_statistics, squares_in_half
from test_due_sums import average, observe_hidden

from distbench.diagnose.judge import judge
from distbench.trace import COMPUTED, INITIAL, STATE, WHOLE
from distbench.verdict import Status

HIDDEN = "local_gradient"


def move(evidence, share, phases):
    """One device's values, and what it adds to its state, moved by so much."""
    reference, rng = evidence.reference, np.random.default_rng(5)

    def move_one(key, value):
        before = 0.0
        if key.phase in STATE:
            before = evidence.get_before(key.step, key.phase, key.variable)
        signs = rng.choice([-share, share], size=np.shape(value))
        return np.float32(before + (value - before) * (1 + signs))

    return tuple(
        replace(
            reference,
            values={
                key: move_one(key, value)
                for key, value in reference.select(replica=WHOLE)
                if key.phase in phases and key.step != INITIAL
            },
        )
        for _ in range(4)
    )


def lead(evidence, share=1e-3):
    """With a step that follows the examples as well as the gradients."""
    moved = move(evidence, share, STATE)
    return change_evidence(evidence, undetermined=("kernel",), moved=moved)


def hide_gradients(evidence, share=1e-3):
    """A step that asks for several gradients of each variable, and sums by hand."""

    def hide(trace):
        kept = {k: v for k, v in trace.values.items() if k.phase != HIDDEN}
        return replace(trace, values=kept)

    moved = move(evidence, share, (*COMPUTED, *STATE))
    probes = {f"rounded-{n}": trace for n, trace in enumerate(moved)}
    probes = {**evidence.probes, **probes}
    return change_evidence(
        evidence,
        observed=hide(evidence.observed),
        reference=hide(evidence.reference),
        twins=tuple(map(hide, evidence.twins)),
        probes={name: hide(trace) for name, trace in probes.items()},
        due=None,
    )


@pytest.mark.parametrize(
    ("change", "reference"), [(lead, "local gradients"), (hide_gradients, "batch")]
)
def test_state_is_held_to_what_a_rounding_of_the_narrow_dtype_moves(change, reference):
    judgement = judge(change(observe_hidden(squares_in_half)))
    assert judgement.status is Status.PASS, judgement.findings
    assert reference in judgement.references["variable"]


@pytest.mark.parametrize("change", [lead, hide_gradients])
def test_what_is_beyond_that_rounding_is_wrong(change):
    judgement = judge(change(observe_hidden(squares_in_half, average)))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "variable"


def test_what_rounding_may_be_is_no_fault_and_no_proof():
    judgement = judge(hide_gradients(observe_hidden(squares_in_half), share=0.05))
    assert judgement.status is Status.UNDECIDABLE, judgement.findings
    assert "noise" in judgement.message


def test_no_rounding_makes_up_for_other_examples():
    """Shards of batch statistics lead a step elsewhere than the global batch does."""
    assert judge(lead(observe_hidden(by_statistics))).status is Status.VACUOUS
