"""Steps whose gradients are not told, where the losses are those of shards alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from grouped_losses import by_statistics, mean_squares, sum_squares
from grouped_training import Simulator, by_share

from distbench.diagnose.judge import judge
from distbench.trace import Values
from distbench.verdict import Status


def hide_gradients(evidence):
    """What is seen of a step that asks for several gradients of each variable."""

    def hide(trace):
        values = Values(trace.values).keep(lambda key: key.phase != "local_gradient")
        return replace(trace, values=values)

    probes = {name: hide(trace) for name, trace in evidence.probes.items()}
    return replace(evidence.change_traces(hide), probes=probes)


def test_losses_of_shards_alone_leave_hidden_gradients_no_measure():
    judgement = judge(hide_gradients(Simulator(by_statistics).make_evidence()))
    assert judgement.status is Status.UNDECIDABLE, judgement.findings
    assert "several of each variable" in judgement.message


@pytest.mark.parametrize(
    ("compute", "weigh"), [(sum_squares, lambda *_: 1.0), (mean_squares, by_share)]
)
def test_losses_that_make_up_the_whole_are_a_measure(compute, weigh):
    right = Simulator(compute, weigh).make_evidence()
    assert judge(hide_gradients(right)).status is Status.PASS
    wrong = Simulator(compute, weigh, lambda parts, _: sum(parts) / 3)
    assert judge(hide_gradients(wrong.make_evidence())).status is Status.FAIL
