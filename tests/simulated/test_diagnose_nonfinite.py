"""Sums that are not finite though every replica's tape gave numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from exchanging import note
from gradient_values import add_up, map_values, to_array
from grouped_losses import by_statistics
from grouped_training import Simulator
from training_simulator import KERNEL, Fault, observe

from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses import reduction
from distbench.diagnose.hypotheses.means_in_terms import explain_by_means_in_terms
from distbench.diagnose.hypotheses.weighted import explain_by_own_shares
from distbench.diagnose.judge import judge
from distbench.fed import Fed
from distbench.trace import WHOLE, Trace, VariableInfo


def judge_sums(reduce, replicas=3):
    with np.errstate(all="ignore"):
        evidence = observe(
            Fault(reduce=lambda own, step: [reduce(own)] * replicas),
            replicas=replicas,
            sparse=False,
        )
    return judge(evidence)


def overflow(value):
    """As float32 what float16 makes of numbers that are too large for it."""

    def change(array):
        return np.where(np.abs(array) > 0.05, np.copysign(np.inf, array), array)

    return map_values(value, lambda a: change(a).astype(np.float32))


def change_some(own, some, change):
    return add_up(
        [
            {path: change(value) for path, value in g.items()} if r in some else g
            for r, g in enumerate(own)
        ]
    )


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_replica_that_overflows_before_the_sum_is_named(replicas):
    judgement = judge_sums(lambda own: change_some(own, (1,), overflow), replicas)
    (finding,) = judgement.findings
    assert (finding.code, finding.replicas) == ("nonfinite", (1,))
    assert "the sign of the gradients of replica 1" in finding.explanation


@pytest.mark.parametrize(
    "reduce",
    [
        lambda own: change_some(own, (0, 1, 2), overflow),
        lambda own: {path: overflow(v) for path, v in add_up(own).items()},
        lambda own: change_some(own, (1,), lambda v: np.full_like(to_array(v), np.nan)),
    ],
    ids=["all", "the-sum-itself", "nan"],
)
def test_no_replica_is_named_where_no_sign_tells_it(reduce):
    (finding,) = judge_sums(reduce).findings
    assert (finding.code, finding.replicas) == ("nonfinite", (0, 1, 2))
    assert "the sign of" not in finding.explanation


def spoil(value, some):
    """NaN in some elements."""
    return np.where(some, np.nan, to_array(value)).astype(to_array(value).dtype)


@pytest.mark.parametrize(
    ("made_by", "named"),
    [
        pytest.param({1: slice(0, 3)}, (1,), id="one"),
        pytest.param({0: slice(0, 2), 2: slice(1, 3)}, (0, 2), id="two"),
        pytest.param({1: slice(0, 2)}, (0, 1, 2), id="not-all-of-it"),
        pytest.param({1: slice(0, 4)}, (0, 1, 2), id="more-than-it"),
    ],
)
def test_who_makes_nan_on_one_device_as_well_is_named(made_by, named):
    """The sum has NaN in its first three elements."""

    def change(value, places):
        some = np.zeros(to_array(value).size, bool)
        some[places] = True
        return spoil(value, some.reshape(to_array(value).shape))

    def reduce(own, step):
        del step
        total = {path: change(v, slice(0, 3)) for path, v in add_up(own).items()}
        return [total] * 3

    evidence = observe(Fault(reduce=reduce), replicas=3, sparse=False)
    handed = {
        replace(key, phase="reduced_gradient"): change(
            value, made_by.get(key.replica, slice(0))
        )
        for key, value in evidence.observed.select(phase="local_gradient")
    }
    apart = replace(evidence.observed, values=handed)
    (finding,) = judge(change_evidence(evidence, apart=apart)).findings
    assert (finding.code, finding.replicas) == ("nonfinite", named)
    assert ("one device makes Inf or NaN" in finding.explanation) == (
        named != (0, 1, 2)
    )


@pytest.mark.parametrize(
    ("spoilers", "named"),
    [((1,), (1,)), ((0, 2), (0, 2)), ((0, 1, 2), (0, 1, 2)), ((), (0, 1, 2))],
    ids=["one", "two", "all", "not-known"],
)
@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "by-hand"])
def test_who_hands_nan_to_the_sum_is_named(spoilers, named, is_seen):
    """It is made on the cluster alone, after the tapes, which give numbers."""

    def reduce(own, step):
        del step
        return [{path: spoil(v, True) for path, v in add_up(own).items()}] * 3

    evidence = observe(Fault(reduce=reduce), replicas=3, sparse=False, steps=1)
    observed = evidence.observed
    kept = {
        key: value
        for key, value in observed.values.items()
        if is_seen or key.phase not in ("reduced_gradient", "applied_gradient")
    }
    notes = {f"spoilt-{replica}": [0] for replica in spoilers}
    observed = replace(observed, values=kept, notes={**observed.notes, **notes})
    fed = evidence.fed if is_seen else Fed()
    finding = judge(replace(evidence, observed=observed, fed=fed)).findings[0]
    assert (finding.code, finding.replicas) == ("nonfinite", named)
    assert ("hands to it" in finding.explanation) == (0 < len(spoilers) < 3)


def test_who_hands_nan_where_a_tape_gave_it_is_not_named_for_that():
    def change(gradients, replica, step):
        del step
        if replica != 1:
            return gradients
        return {path: spoil(value, True) for path, value in gradients.items()}

    evidence = observe(Fault(local=change), replicas=3, sparse=False, steps=1)
    notes = {**evidence.observed.notes, "spoilt-1": [0]}
    observed = replace(evidence.observed, notes=notes)
    findings = judge(replace(evidence, observed=observed)).findings
    assert all("hands to it" not in finding.explanation for finding in findings)


def make_empty_context(phase):
    """Wrong values of which none is finite, as a hypothesis sees them."""
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    terms = tuple(replace(evidence.reference, name=f"term {n}") for n in range(2))
    return Context(
        evidence=replace(evidence, terms=terms),
        phase=phase,
        cases=(),
        right=frozenset(),
        root=True,
    )


@pytest.mark.parametrize("explain", [explain_by_means_in_terms, explain_by_own_shares])
def test_shards_are_not_asked_where_nothing_that_is_wrong_is_finite(explain) -> None:
    assert list(explain(make_empty_context("local_gradient"))) == []


def test_a_sum_without_any_replica_lacks_none(monkeypatch) -> None:
    monkeypatch.setattr(reduction, "fit_told_weights", lambda _: np.zeros(3))
    found = reduction.explain_by_weights(make_empty_context("reduced_gradient"))
    assert "replica-dropped" not in [hypothesis.code for hypothesis in found]


@pytest.mark.parametrize(
    ("old", "new", "due", "words"),
    [
        (1024.0, 512.0, 512.0, "went from 1024 to 512"),
        (1024.0, 1024.0, 512.0, "stayed at 1024"),
        # A rate, or any other number that no overflow has to do with.
        (2.0, 2.0, 2.0, ""),
        (3.0, 3.0, 2.0, ""),
        (3.0, 2.0, 2.0, ""),
    ],
)
def test_a_number_that_stays_as_it_is_is_no_loss_scale(old, new, due, words):
    info = VariableInfo(path="scale", role="slot", shape=(), dtype="float32")

    def keep(trace: Trace) -> Trace:
        values = {
            replace(key, phase="slot", variable="scale"): np.float32(
                old if key.step < 0 else due if key.replica == WHOLE else new
            )
            for key, _ in trace.select(phase="variable", variable=KERNEL)
        }
        return replace(
            trace, variables=(*trace.variables, info), values={**trace.values, **values}
        )

    fault = Fault(
        reduce=lambda own, step: [change_some(own, (1,), overflow)] * len(own)
    )
    with np.errstate(all="ignore"):
        evidence = observe(fault, sparse=False, steps=1).change_traces(keep)
    text = judge(evidence).findings[0].explanation
    assert ("'scale'" in text) == bool(words), text
    assert words in text
