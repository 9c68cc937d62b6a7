"""What a report is given of a run: true to the evidence, bounded, and JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from flights import TALLY, Simulated
from judged_runs import MEAN
from simulated_rule import Rule
from training_simulator import BIAS, KERNEL, Fault, observe
from verdict_samples import make_run, make_verdict

from distbench.checking.detailing import keep_details
from distbench.details import Compared, Details, Series, details_from_json
from distbench.diagnose.flight import judge_flight
from distbench.diagnose.judge import judge
from distbench.errors import BadInputError
from distbench.trace import INITIAL, WHOLE, TraceKey
from distbench.verdict import Status
from distbench.verdict.document import verdict_from_json, verdict_to_json


def find_series(details: Details, **wanted) -> Series:
    (found,) = [
        line
        for line in details.series
        if all(getattr(line, name) == value for name, value in wanted.items())
    ]
    return found


def make_compared(**changes) -> Compared:
    settings = {
        "step": 0,
        "call": 0,
        "phase": "variable",
        "variable": "w",
        "replica": 0,
        "relation": "reference",
        "against": "one device, the global batch",
        "error": 0.25,
        "bound": 1e-7,
        "error_over_bound": 2.5e6,
        "ratio": None,
        "wrong": True,
        **changes,
    }
    return Compared(**settings)


def test_what_is_kept_is_what_was_observed_and_judged():
    evidence = observe(Fault(reduce=MEAN), rule=Rule(name="momentum"), steps=3)
    judgement = judge(evidence)
    details = keep_details(evidence, judgement.compared, {"worker-0": "hello"})

    assert judgement.status is Status.FAIL
    assert len(details.compared) == judgement.checked
    first = next(item for item in details.compared if item.wrong)
    assert (first.phase, first.step) == (judgement.findings[0].phase, 0)
    worst = judgement.worst
    assert worst is not None
    assert worst.error_over_bound in {i.error_over_bound for i in details.compared}

    loss = find_series(details, phase="loss", replica=1, observed=True)
    keys = [TraceKey(step=step, phase="loss", replica=1) for step in range(3)]
    assert loss.values == tuple(float(evidence.observed.values[key]) for key in keys)
    norm = find_series(details, variable=BIAS, phase="variable", observed=False)
    assert norm.steps == (INITIAL, 0, 1, 2)
    last = TraceKey(step=2, phase="variable", variable=BIAS, replica=WHOLE)
    assert math.isclose(
        norm.values[-1],
        float(np.linalg.norm(np.float64(evidence.reference.values[last]))),
    )
    assert (
        find_series(
            details, variable=f"momentum/{KERNEL}", replica=0, observed=True
        ).phase
        == "slot"
    )
    assert details.logs == {"worker-0": "hello"}
    assert details.left_out == 0


def test_steps_in_flight_are_kept_too():
    flight = Simulated(momentum=0.9, times={2: 2}).observe()
    judgement = judge_flight(flight)
    details = keep_details(flight, judgement.compared, {})
    assert len(details.compared) == judgement.checked
    wrong = [item for item in details.compared if item.wrong]
    assert wrong
    assert all(item.error_over_bound > 1 for item in wrong)
    assert {line.observed for line in details.series if line.variable == TALLY} == {
        True,
        False,
    }


def test_of_a_large_model_the_first_wrong_comparisons_are_kept():
    right = [make_compared(wrong=False, error_over_bound=i / 9000) for i in range(9000)]
    late = [make_compared(step=9, variable=f"late{i}") for i in range(3000)]
    early = [make_compared(step=0, variable=f"early{i}") for i in range(900)]
    details = keep_details(None, [*right, *late, *early], {})
    assert details.left_out == len(right) + len(late) + len(early) - 4000
    assert set(early) < set(details.compared)
    assert set(late) < set(details.compared)
    # Of the rest those that came nearest to their bounds.
    left = [item.error_over_bound for item in details.compared if not item.wrong]
    assert left == [i / 9000 for i in range(8900, 9000)]


def test_a_long_run_keeps_its_losses_and_what_is_wrong():
    evidence = observe(Fault(reduce=MEAN), rule=Rule(name="adam"), steps=2)
    long = 9_000
    trace = evidence.observed
    key, value = next(iter(trace.select(phase="loss", replica=0)))
    losses = {replace(key, step=step): value for step in range(long)}
    observed = replace(trace, values={**trace.values, **losses})
    wrong = make_compared(variable=BIAS)
    details = keep_details(replace(evidence, observed=observed), [wrong], {})
    assert (
        len(find_series(details, phase="loss", replica=0, observed=True).values) == long
    )
    assert sum(len(line.values) for line in details.series) <= 20_000
    state = [line.variable for line in details.series if line.phase != "loss"]
    assert state[0] == BIAS


def test_details_are_in_a_verdicts_json_only_if_asked_for():
    details = Details(
        compared=(make_compared(error=math.inf, bound=math.nan, ratio=-0.5),),
        series=(
            Series(
                phase="loss",
                variable="",
                replica=0,
                observed=True,
                steps=(0, 1),
                values=(math.nan, -math.inf),
            ),
        ),
        logs={"worker-0": "</script>\x00"},
        left_out=3,
    )
    verdict = make_verdict(make_run(details=details), make_run())
    plain = json.loads(verdict_to_json(verdict))
    assert all("details" not in run for run in plain["runs"])

    text = verdict_to_json(verdict, details=True)
    first, second = verdict_from_json(text).runs
    assert second.details is None
    assert repr(first.details) == repr(details)  # a NaN is not equal to itself
    assert verdict_to_json(verdict_from_json(text), details=True) == text


def test_what_is_no_document_of_details_is_refused():
    verdict = make_verdict(make_run(details=Details(compared=(make_compared(),))))
    document = json.loads(verdict_to_json(verdict, details=True))
    document["runs"][0]["details"]["names"] = []
    with pytest.raises(BadInputError, match="not a verdict"):
        verdict_from_json(json.dumps(document))
    assert (
        details_from_json(
            {"compared": [], "series": [], "names": [], "logs": {}, "left_out": 0}
        )
        == Details()
    )
