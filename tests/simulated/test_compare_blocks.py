"""What makes large models possible changes nothing of what is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gradient_values import scale, to_array
from swept import swept
from training_simulator import RIGHT, TRAINED, Fault, observe, reduce_with

from distbench.compare import comparison
from distbench.compare.arrays import bounds
from distbench.compare.arrays.pair import Pair
from distbench.compare.comparison import Judged, compare_evidence
from distbench.diagnose.judge import judge
from distbench.fed import Fed
from distbench.trace import Trace, Values, numbers, shelf
from distbench.verdict import Status


def drop_one(parts: list[Any]) -> np.ndarray:
    return np.sum([to_array(part) for part in parts[1:]], axis=0, dtype=np.float32)


FAULTS = {
    "right": RIGHT,
    "scaled": Fault(local=lambda g, r, step: {k: scale(v, 3.0) for k, v in g.items()}),
    "dropped": Fault(reduce=reduce_with(drop_one)),
}


def describe(judged: tuple[Judged, ...]) -> list[Any]:
    return [
        (c.key, c.relation, c.wrong, c.effective, c.hidden, pytest.approx(c.error))
        for c in (item.comparison for item in judged)
    ]


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("tier", ["bounded", *swept("exact")])
def test_blocks_of_numbers_come_to_what_the_whole_does(
    name: str, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = observe(FAULTS[name], tier=tier, replicas=4)
    whole = compare_evidence(evidence)
    for module in (numbers, bounds, comparison):
        monkeypatch.setattr(module, "BLOCK", 3)
    parts = compare_evidence(evidence)
    assert describe(parts) == describe(whole)
    bound_pairs = zip(whole, parts, strict=True)
    for left, right in bound_pairs:
        assert right.comparison.bound == pytest.approx(left.comparison.bound)
        assert right.comparison.ratio == pytest.approx(left.comparison.ratio)


def test_copies_of_a_value_are_tested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tested: list[Pair] = []
    test = comparison._test

    def count(pair: Pair, evidence: Any) -> Any:
        tested.append(pair)
        return test(pair, evidence)

    monkeypatch.setattr(comparison, "_test", count)
    judged = compare_evidence(observe(replicas=4))
    states = [c for j in judged if (c := j.comparison).phase in ("slot", "variable")]
    assert {c.replica for c in states} == {0, 1, 2, 3}
    of_states = [p for p in tested if p.key.phase in ("slot", "variable")]
    places = {(p.key.at(0), p.relation) for p in of_states}
    assert len(places) == len(of_states) < len(states) / 2


def test_a_replica_that_differs_in_a_bit_is_tested_by_itself() -> None:
    def move(state: dict, old: dict, applied: dict, run: Any) -> dict:
        if run.replica != 2:
            return state
        return {
            k: v if v.dtype.kind == "i" else np.nextafter(v, v + 1)
            for k, v in state.items()
        }

    judged = compare_evidence(observe(Fault(update=move), replicas=4))
    wrong = {
        item.comparison.replica
        for item in judged
        if item.comparison.wrong and item.comparison.relation == "replicas"
    }
    assert wrong == {2}


@pytest.mark.parametrize("name", ["scaled", "dropped"])
def test_numbers_of_later_steps_may_be_let_go(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = observe(FAULTS[name], replicas=4)
    expected = judge(evidence)
    assert expected.status is Status.FAIL
    monkeypatch.setattr(comparison, "_MOST_HELD_BYTES", 0)
    judged = compare_evidence(evidence)
    held = {j.comparison.step for j in judged if j.pair is not None}
    wrong = {j.comparison.step for j in judged if j.comparison.wrong}
    assert held == {0} < wrong
    found = judge(evidence)
    for left, right in zip(expected.findings, found.findings, strict=True):
        assert (right.code, right.phase, right.step) == (
            left.code,
            left.phase,
            left.step,
        )
        assert (right.variables, right.replicas) == (left.variables, left.replicas)


def double_first(gradients: Any, replica: int, step: int) -> Any:
    return {k: scale(v, 2.0 if step == 0 else 1.0) for k, v in gradients.items()}


def stray_later(new: Any, old: Any, gradients: Any, run: Any) -> Any:
    """The first update is one with the gradients that are wrong, and no other is."""
    return {
        k: v + np.float32(0.5) if run.step and k in TRAINED else v
        for k, v in new.items()
    }


def see_no_sums(trace: Trace) -> Trace:
    hidden = ("reduced_gradient", "applied_gradient")
    values = {k: v for k, v in trace.values.items() if k.phase not in hidden}
    return replace(trace, values=values)


def test_numbers_are_there_again_where_what_was_held_is_no_fault_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Variables are wrong from the first step on, which follows from gradients."""
    evidence = observe(Fault(local=double_first, update=stray_later))
    evidence = replace(
        evidence,
        observed=see_no_sums(evidence.observed),
        reference=see_no_sums(evidence.reference),
        twins=tuple(map(see_no_sums, evidence.twins)),
        fed=Fed(),
    )
    expected = [(f.code, f.phase, f.step) for f in judge(evidence).findings]
    assert len(expected) == 2
    monkeypatch.setattr(comparison, "_MOST_HELD_BYTES", 0)
    assert [(f.code, f.phase, f.step) for f in judge(evidence).findings] == expected


def test_one_place_of_all_replicas_is_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "LARGE_BYTES", 0)
    held: list[int] = []
    read = shelf.Shelved.read

    def count(array: shelf.Shelved) -> Any:
        found = read(array)
        held.append(len(shelf._held))
        return found

    monkeypatch.setattr(shelf.Shelved, "read", count)

    def put_away(trace: Trace) -> Trace:
        kept = Values({}, shelf.Shelf(tmp_path))
        kept.update(trace.values)
        return replace(trace, values=kept)

    evidence = observe(replicas=8)
    observed, reference = map(put_away, (evidence.observed, evidence.reference))
    stored = replace(evidence, observed=observed, reference=reference)
    assert describe(compare_evidence(stored)) == describe(compare_evidence(evidence))
    # What all replicas have there, and what little it is held against.
    assert 8 <= max(held) <= 8 + 4
