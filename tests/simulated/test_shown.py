"""What fit shows, beside what it shows on one device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import sum_squares
from grouped_training import Simulator

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import SHOWN, MetricInfo, Trace, TraceKey
from distbench.verdict import Status

DUE = np.array([1.5, 1.25, 0.75])


def _show(name: str, seen: np.ndarray, due: np.ndarray = DUE) -> Evidence:
    """A training that is right, and what is shown of it."""
    evidence = Simulator(sum_squares).make_evidence()

    def add(trace: Trace, numbers: np.ndarray) -> Trace:
        more = {
            TraceKey(step=step, phase="loss", variable=f"{SHOWN}{name}"): value
            for step, value in enumerate(numbers)
        }
        return replace(trace, values={**trace.values, **more})

    return replace(
        evidence,
        observed=add(evidence.observed, seen),
        reference=add(evidence.reference, due),
    )


@pytest.mark.parametrize(("times", "ratio"), [(3, 3.0), (1 / 3, 1 / 3)])
def test_a_loss_that_is_n_times_or_a_share_is_misreported(times, ratio) -> None:
    judgement = judge(_show("loss", times * DUE))
    (finding,) = judgement.findings
    assert (judgement.status, finding.code) == (Status.FAIL, "loss-misreported")
    assert finding.ratio == pytest.approx(ratio)
    assert f"fit shows {times * 1.5:.6g} as 'loss'" in finding.explanation


@pytest.mark.parametrize(
    ("seen", "due"),
    [
        (DUE * (1 + 1e-6), DUE),  # it rounds
        (DUE + 0.1, DUE),  # as of batch statistics that each replica has for itself
        (np.zeros(3), np.zeros(3)),
        (np.full(3, np.nan), np.full(3, np.nan)),
    ],
)
def test_any_other_loss_is_none_of_what_is_shown(seen, due) -> None:
    judgement = judge(_show("loss", seen, due))
    assert (judgement.status, judgement.message) == (Status.PASS, "")


def test_other_numbers_are_noted() -> None:
    judgement = judge(_show("rate", 3 * DUE))
    assert judgement.status is Status.PASS
    assert "fit shows 2.25 as 'rate', and 0.75 on one device" in judgement.message


@pytest.mark.parametrize("name", ["kl_loss", "total_loss"])
def test_not_every_loss_is_that_of_an_output(name: str) -> None:
    assert f"as '{name}', and 0.75" in judge(_show(name, 3 * DUE)).message


def test_a_number_that_is_nan_on_the_cluster_alone_is_noted() -> None:
    seen = np.array([1.5, np.nan, 0.75])
    message = judge(_show("rate", seen)).message
    assert "fit shows nan as 'rate', and 1.25 on one device" in message
    assert judge(_show("rate", seen, seen)).message == ""


@pytest.mark.parametrize(
    ("name", "metric"),
    [("rate", "rate"), ("head_rate", "rate"), ("head_loss", "head_loss")],
    ids=["metric", "of-an-output", "loss-of-an-output"],
)
def test_what_a_metric_shows_is_told_of_the_metric(name: str, metric: str) -> None:
    evidence = _show(name, 3 * DUE)
    metrics = (MetricInfo(name=metric, state=()),)
    observed = replace(evidence.observed, metrics=metrics)
    assert judge(replace(evidence, observed=observed)).message == ""


def test_the_step_of_a_shown_loss_is_the_one_that_shows_it() -> None:
    """Several steps that are executed as one show a number after the last of them."""
    evidence = _show("loss", 3 * DUE)

    def drop(trace: Trace) -> Trace:
        kept = {
            key: value
            for key, value in trace.values.items()
            if key.step != 0 or not key.variable.startswith(SHOWN)
        }
        return replace(trace, values=kept)

    (finding,) = judge(evidence.change_traces(drop)).findings
    assert (finding.code, finding.step) == ("loss-misreported", 1)
    assert "Step 1, loss" in finding.explanation
