"""A gradient that one device has and no replica: 0, and told of the gradient."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from training_simulator import BIAS, Fault, observe

from distbench.checking.confirm import find_correction
from distbench.compare.nature.absent import add_absent
from distbench.diagnose.judge import judge

GRADIENTS = ("local_gradient", "reduced_gradient", "applied_gradient")


def leave_alone(new, old, gradients, run):
    """The optimizer leaves out the bias, of which it was handed nothing."""
    return {path: old[path] if BIAS in path else v for path, v in new.items()}


def drop(phases):
    """A run in which the cluster shows nothing of the bias in these phases."""
    evidence = observe(Fault(update=leave_alone))
    kept = {
        key: value
        for key, value in evidence.observed.values.items()
        if key.variable != BIAS or key.phase not in phases
    }
    return replace(evidence, observed=replace(evidence.observed, values=kept))


def test_what_no_replica_has_a_gradient_of_is_told_of_the_gradient():
    evidence = drop(GRADIENTS)
    findings = judge(evidence).findings
    assert [(f.code, f.phase, f.variables) for f in findings] == [
        ("scale-error", "local_gradient", (BIAS,))
    ]
    assert "nothing leads from their losses" in findings[0].explanation
    # No gradient can be put in where the optimizer is handed none.
    assert find_correction(findings, evidence) is None


def test_what_is_summed_or_not_looked_at_is_not_taken_for_0():
    for phases in (("local_gradient",), ()):
        evidence = drop(phases)
        assert add_absent(evidence) is evidence
    unseen = drop(GRADIENTS)
    kept = {
        key: value
        for key, value in unseen.observed.values.items()
        if key.phase != "local_gradient"
    }
    unseen = replace(unseen, observed=replace(unseen.observed, values=kept))
    assert add_absent(unseen) is unseen


def test_a_variable_of_another_name_is_not_taken_for_one_without_gradients():
    evidence = drop(GRADIENTS)
    observed = evidence.observed
    others = tuple(info for info in observed.variables if info.path != BIAS)
    renamed = replace(evidence, observed=replace(observed, variables=others))
    assert add_absent(renamed) is renamed


def test_zeros_have_the_shape_of_what_is_due():
    observed = add_absent(drop(GRADIENTS)).observed
    found = dict(observed.select(phase="local_gradient", variable=BIAS))
    assert {key.replica for key in found} == {0, 1}
    assert all(np.array_equal(v, np.zeros(6)) for v in found.values())
