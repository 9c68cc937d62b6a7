"""A momentum by hand in programs that show no gradients: which sum it took."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, add_values, scale, to_array
from judged_runs import MEAN
from planted_case import check_passed
from simulated_rule import Rule
from training_simulator import TRAINED, Fault, observe, reduce_with

from distbench.diagnose.judge import judge
from distbench.trace import GRADIENTS, Trace, TraceKey, Values

REPLICAS = 3
RULE = Rule(name="momentum")
BUFFERS = tuple(f"momentum/{path}" for path in TRAINED)


def name_of_hand(info):
    """The buffers as variables of the program."""
    if info.path not in BUFFERS:
        return replace(info, trainable=info.path in TRAINED)
    return replace(info, role="variable", of="", trainable=False)


def show_state(trace: Trace) -> Trace:
    """What is seen of a program that hides its gradients and updates by hand."""
    values: Values[TraceKey] = Values()
    for key, value in trace.values.items():
        is_buffer = key.variable in BUFFERS
        if key.phase not in GRADIENTS:
            values[replace(key, phase="variable") if is_buffer else key] = value
    infos = tuple(map(name_of_hand, trace.variables))
    return replace(trace, values=values, variables=infos)


def follow_shards(evidence):
    """The same, with the state after each shard alone on one device."""
    reference = evidence.reference
    values: Values[TraceKey] = Values(reference.values)
    for step in range(reference.steps):
        before = {
            info.path: evidence.get_before(step, info.role, info.path)
            for info in reference.variables
        }
        for replica in range(REPLICAS):
            own = reference.select(step=step, phase="local_gradient", replica=replica)
            after = RULE.update(before, {key.variable: value for key, value in own})
            for info in reference.variables:
                key = TraceKey(
                    step=step, phase=info.role, variable=info.path, replica=replica
                )
                values[key] = np.asarray(after[info.path])
    return replace(evidence, reference=replace(reference, values=values))


def observe_hidden(reduce=None):
    evidence = observe(
        Fault(reduce=reduce),
        rule=RULE,
        replicas=REPLICAS,
        steps=3,
        shards_known=False,
    )
    hidden = follow_shards(evidence).change_traces(show_state)
    return change_evidence(hidden, replays={}, repeated=(), turns=None)


def times(factor):
    return reduce_with(lambda values: scale(add_values(values), factor))


@pytest.mark.parametrize(
    ("reduce", "code", "replicas"),
    [
        (MEAN, "mean-instead-of-sum", (0, 1, 2)),
        (times(3.0), "double-reduction", (0, 1, 2)),
        (times(0.7), "scale-error", (0, 1, 2)),
        (lambda own, step: list(own), "missing-reduction", (0, 1, 2)),
        (lambda own, step: [own[1]] * 3, "replica-dropped", (0, 2)),
    ],
    ids=["mean", "times-n", "other-factor", "own", "one"],
)
def test_the_sum_that_a_momentum_took_is_told(reduce, code, replicas):
    found = judge(observe_hidden(reduce)).findings
    assert [(f.code, f.phase) for f in found] == [(code, "variable")]
    assert found[0].replicas == replicas
    assert set(found[0].variables) & set(BUFFERS) == set(BUFFERS)
    assert found[0].confidence > 0.999


def test_a_momentum_of_the_sum_passes():
    check_passed(judge(observe_hidden()))


def test_what_no_sum_explains_is_not_told_as_one():
    """Some other state of the model is no statistic either."""

    def square(own, step):
        total = {path: to_array(value) for path, value in add_up(own).items()}
        return [{path: value**2 for path, value in total.items()}] * 3

    found = judge(observe_hidden(square)).findings
    assert found
    assert {f.code for f in found}.isdisjoint(
        {"mean-instead-of-sum", "double-reduction", "statistics-not-synchronized"}
    )
