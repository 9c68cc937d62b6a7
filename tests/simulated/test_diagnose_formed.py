"""Rules that lead elsewhere by the form in which a right gradient comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from gradient_values import add_up, add_values, scale, to_array
from simulated_rule import Rule
from training_simulator import TABLE, Fault, Gradients, observe
from wrong_steps import add_rows

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import WHOLE, SparseRows, Trace, Value, VariableInfo
from distbench.verdict import Status

SLOT = f"momentum/{TABLE}"
Made = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""What a rule makes of a state: of what it was, of what is due, and of how many times
as many slices each row has."""


def add_own(gradients: Gradients, replica: int, step: int) -> Gradients:
    del replica, step
    return {**gradients, TABLE: add_rows(gradients[TABLE])}


def make_evidence(
    make: Made = lambda before, due, times: due,
    *,
    dense: bool = False,
    tier: str = "bounded",
    fault: Fault | None = None,
) -> Evidence:
    """A run whose replicas add up their rows, and a rule that makes a slot of these.

    Args:
        make: What the rule makes of the gradient as it came.
        dense: Whether its sum is dense on the cluster.
        tier: Which one.
        fault: What else is wrong.
    """
    evidence = observe(
        fault or Fault(local=add_own),
        rule=Rule(name="momentum"),
        tier=tier,
        shards_known=False,
    )
    one, seen = dict(evidence.reference.values), dict(evidence.observed.values)
    came = dict(evidence.fed.replays["reduced_gradient"].values)
    formed: dict = {}
    for key, value in evidence.observed.values.items():
        whole = key.at(WHOLE)
        if key.variable == TABLE and key.phase.endswith("d_gradient"):
            one[whole] = add_rows(evidence.reference.values[whole])
            seen[key] = to_array(value) if dense else value
        if key.step < 0 or key.phase not in ("slot", "variable"):
            continue
        formed[key] = evidence.reference.values[whole]
        if key.variable == SLOT:
            before = evidence.get_before(key.step, key.phase, key.variable)
            times = count_times(evidence, key.step)
            seen[key] = came[key] = make(before, formed[key], times).astype(value.dtype)
    replays = {"reduced_gradient": replace(evidence.observed, values=came)}
    notes = {"phase": "reduced_gradient"}
    return replace(
        evidence,
        reference=replace(evidence.reference, values=one),
        observed=replace(evidence.observed, values=seen),
        fed=replace(
            evidence.fed,
            replays=replays,
            formed=(replace(evidence.observed, values=formed, notes=notes),),
        ),
    )


def count_times(evidence: Evidence, step: int) -> np.ndarray:
    found = evidence.observed.select(step=step, phase="reduced_gradient", replica=0)
    [table] = (value for key, value in found if key.variable == TABLE)
    assert isinstance(table, SparseRows)
    times = np.maximum(1, table.count_rows())
    assert times.max() > 1
    return times[:, np.newaxis]


def square(before: np.ndarray, due: np.ndarray, times: np.ndarray) -> np.ndarray:
    return before + (due - before) * np.sqrt(0.4 * times)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (square, "sparse-duplicates"),
        (lambda before, due, times: before + (due - before) / times, "sparse-averaged"),
        (lambda before, due, times: before + (due - before) * times, "slot-repeated"),
    ],
    ids=["each slice", "averaged", "counted"],
)
@pytest.mark.parametrize("tier", ["bounded", "exact"])
def test_what_a_rule_makes_of_each_slice_is_told(
    make: Made, code: str, tier: str
) -> None:
    judgement = judge(make_evidence(make, tier=tier))
    assert judgement.status is Status.FAIL
    [found] = judgement.findings
    told = (found.code, found.phase, found.variables, found.step, found.replicas)
    assert told == (code, "slot", (SLOT,), 0, (0, 1)), found.explanation


def test_rows_that_nobody_looked_up_are_told() -> None:
    judgement = judge(make_evidence(square, dense=True))
    [found] = judgement.findings
    told = (found.code, found.phase, found.variable)
    assert told == ("sparse-rows", "slot", SLOT), found.explanation


@pytest.mark.parametrize("dense", [False, True], ids=["rows", "dense"])
def test_another_form_of_the_same_sum_is_right(dense: bool) -> None:
    def round_otherwise(
        before: np.ndarray, due: np.ndarray, times: np.ndarray
    ) -> np.ndarray:
        del before, times
        return np.nextafter(due, np.inf)

    judgement = judge(make_evidence(round_otherwise, dense=dense))
    assert judgement.status is Status.PASS, judgement.findings


def test_what_is_wrong_before_is_told_alone() -> None:
    def double(gradients: Gradients, replica: int, step: int) -> Gradients:
        own = add_own(gradients, replica, step)
        return {**own, TABLE: scale(own[TABLE], 2.0)}

    judgement = judge(make_evidence(square, fault=Fault(local=double)))
    assert [found.phase for found in judgement.findings] == ["local_gradient"]


def test_state_that_does_not_follow_as_it_came_has_another_cause() -> None:
    evidence = make_evidence(square)

    def spoil(value: Value) -> Value:
        return value * np.float32(1.5)

    seen = {
        key: spoil(value) if key.variable == SLOT and key.step >= 0 else value
        for key, value in evidence.observed.values.items()
    }
    observed = replace(evidence.observed, values=seen)
    judgement = judge(replace(evidence, observed=observed))
    assert all("own rows" not in found.explanation for found in judgement.findings)
    assert judgement.status is Status.FAIL


@pytest.mark.parametrize(
    ("far", "status"), [(1e-6, Status.FAIL), (1.0, Status.PASS)], ids=["near", "far"]
)
def test_where_twins_scatter_moved_sums_say_what_is_rounding(
    far: float, status: Status
) -> None:
    evidence = make_evidence(square)
    [formed] = evidence.fed.formed
    values = {key: value + np.float32(far) for key, value in formed.values.items()}
    fed = replace(evidence.fed, formed=(formed, replace(formed, values=values)))
    assert judge(replace(evidence, fed=fed)).status is status


def test_squares_of_shares_are_no_mean() -> None:
    """The replicas average a sum once more, so that each has all slices, an Nth."""

    def share(reduced: Gradients, replica: int, step: int) -> Gradients:
        parts = [scale(reduced[TABLE], 0.5)] * 2
        return {**reduced, TABLE: add_values(parts)}

    def halve(before: np.ndarray, due: np.ndarray, times: np.ndarray) -> np.ndarray:
        return before + (due - before) / times

    fault = Fault(
        local=add_own,
        reduce=lambda parts, step: [share(add_up(parts), r, step) for r in (0, 1)],
    )
    [found] = judge(make_evidence(halve, fault=fault)).findings
    assert found.code == "sparse-duplicates", found.explanation


def test_one_number_for_all_rows_is_told() -> None:
    """As the norm of a table, which a rule makes of its slices, may be."""
    info = VariableInfo(
        path=f"norm/{TABLE}", role="slot", of=TABLE, shape=(), dtype="float32"
    )

    def add(trace: Trace, times: float) -> Trace:
        """With the number, which grows by so much in each step."""
        values = {
            replace(key, variable=info.path): np.array(1 + (key.step + 1) * times)
            for key in trace.values
            if key.variable == SLOT
        }
        narrow = {key: value.astype(np.float32) for key, value in values.items()}
        return replace(
            trace,
            variables=(*trace.variables, info),
            values={**trace.values, **narrow},
        )

    evidence = make_evidence()
    fed = evidence.fed
    replay = {name: add(trace, 1.5) for name, trace in fed.replays.items()}
    judgement = judge(
        replace(
            evidence,
            reference=add(evidence.reference, 1.0),
            observed=add(evidence.observed, 1.5),
            twins=tuple(add(trace, 1.0) for trace in evidence.twins),
            fed=replace(
                fed,
                replays=replay,
                formed=tuple(add(trace, 1.0) for trace in fed.formed),
            ),
        )
    )
    [found] = judgement.findings
    told = (found.code, found.phase, found.variable)
    assert told == ("sparse-duplicates", "slot", info.path), found.explanation
