"""Moving statistics of the own examples, beside what replicas take of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from exchanging import Exchanging, note, round_whole
from grouped_losses import by_statistics
from grouped_training import Simulator

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, MetricInfo, Trace, TraceKey, VariableInfo
from distbench.verdict import Status


def keep_statistic(evidence: Evidence, copies: tuple[float, ...]) -> Evidence:
    """Give the model a moving mean: on one device 4, and of the shards 1, 3 and 5."""
    moving = VariableInfo(
        path="moving", role="variable", shape=(1,), dtype="float32", trainable=False
    )

    def keep(trace: Trace, numbers: Mapping[int, float]) -> Trace:
        values = dict(trace.values)
        for step in (INITIAL, *range(trace.steps)):
            for replica, number in numbers.items():
                key = TraceKey(
                    step=step, phase="variable", variable="moving", replica=replica
                )
                now = 0.0 if step == INITIAL else number
                values[key] = np.array([now], np.float32)
        return replace(trace, values=values, variables=(*trace.variables, moving))

    whole = {WHOLE: 4.0}
    return replace(
        evidence,
        reference=keep(evidence.reference, {**whole, 0: 1.0, 1: 3.0, 2: 5.0}),
        observed=keep(evidence.observed, dict(enumerate(copies))),
        twins=tuple(keep(twin, whole) for twin in evidence.twins),
    )


def test_statistics_of_the_own_examples_leave_features_no_measure() -> None:
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    judgement = judge(keep_statistic(evidence, (3.0, 3.0, 3.0)))
    assert judgement.status is Status.UNDECIDABLE
    assert "'moving' is a statistic of the own examples" in judgement.message
    synchronised = judge(keep_statistic(evidence, (4.0, 4.0, 4.0)))
    assert synchronised.status is Status.FAIL
    right = note(Exchanging().make_evidence(), "features")
    assert judge(keep_statistic(right, (4.0, 4.0, 4.0))).status is Status.PASS


def test_what_takes_what_the_losses_take_is_no_statistic_of_its_own() -> None:
    """A mean of means, of uneven shards: the moving mean is what shards alone give."""
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    evidence = keep_statistic(evidence, (3.0, 3.0, 3.0))
    notes = {**evidence.observed.notes, "shared_state": ["moving"]}
    judgement = judge(
        replace(evidence, observed=replace(evidence.observed, notes=notes))
    )
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "loss"


def test_what_is_made_of_derivatives_leaves_the_whole_a_measure() -> None:
    """A curvature: the losses add up, and it follows from the own examples alone."""
    evidence = note(Exchanging().make_evidence(), "features")
    evidence = keep_statistic(evidence, (3.0, 3.0, 3.0))
    notes = {**evidence.observed.notes, "of_derivatives": ["moving"]}
    judgement = judge(
        replace(evidence, observed=replace(evidence.observed, notes=notes))
    )
    assert judgement.status is Status.FAIL
    (finding,) = judgement.findings
    assert (finding.phase, finding.variables) == ("variable", ("moving",))
    assert finding.code == "statistics-not-synchronized"


def test_what_replicas_count_for_themselves_is_no_part_of_a_loss() -> None:
    """A counter of examples, of which one device has all that the replicas have."""
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    evidence = keep_statistic(evidence, (1.0, 1.0, 2.0))
    evidence = evidence.change_traces(
        lambda trace: replace(
            trace,
            variables=tuple(
                replace(info, synchronised=info.path != "moving")
                for info in trace.variables
            ),
        )
    )
    judgement = judge(evidence)
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "loss"


def test_replicas_that_are_updated_between_two_losses_leave_these_no_measure() -> None:
    """By hand: what comes later is made of the sum, which shards alone have not."""
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    assert judge(evidence).status is Status.FAIL
    notes = {**evidence.observed.notes, "exchange_by_gradients": True}
    updated = replace(evidence, observed=replace(evidence.observed, notes=notes))
    judgement = judge(updated)
    assert judgement.status is Status.PASS
    assert "on gradients of all replicas" in judgement.message


def test_what_a_metric_counts_of_its_own_examples_is_no_part_of_a_loss() -> None:
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    evidence = keep_statistic(evidence, (3.0, 3.0, 3.0))
    shown = MetricInfo(name="shown", state=("moving",))
    observed = replace(evidence.observed, metrics=(shown,))
    assert judge(replace(evidence, observed=observed)).status is Status.FAIL


def test_statistics_of_the_own_examples_leave_narrow_features_no_measure() -> None:
    evidence = round_whole(Simulator(by_statistics).make_evidence(), share=1e-3)
    judgement = judge(keep_statistic(evidence, (3.0, 3.0, 3.0)))
    assert judgement.status is Status.UNDECIDABLE
    assert judge(keep_statistic(evidence, (4.0, 4.0, 4.0))).status is Status.FAIL
