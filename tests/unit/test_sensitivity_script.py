"""The arithmetic of `scripts/sensitivity`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imported_scripts import share_scripts

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.fed import Fed
from distbench.trace import INITIAL, WHOLE, Phase, Trace, TraceKey, VariableInfo
from distbench.verdict import Status

ROOT = Path(__file__).parents[2]
NAMES = (
    "measured",
    "planting",
    "thresholds",
    "sensitivity_optimizers",
    "sensitivity_places",
    "sensitivity",
)


scripts = share_scripts(*NAMES)


# --- bisecting ----------------------------------------------------------------------


@pytest.mark.parametrize("true", [3.3e-9, 2.0**-21, 1.7e-5, 0.3, 40.0])
def test_the_smallest_visible_error_is_found(scripts: Any, true: float) -> None:
    found = scripts["thresholds"].find_threshold(lambda size: size >= true)
    assert found.unseen < true <= found.seen
    assert found.seen / found.unseen < 1.05


def test_what_is_never_seen_has_no_threshold(scripts: Any) -> None:
    assert scripts["thresholds"].find_threshold(lambda _: False) is None


def test_what_is_always_seen_stops_at_the_floor(scripts: Any) -> None:
    found = scripts["thresholds"].find_threshold(lambda _: True, floor=2.0**-30)
    assert (found.seen, found.unseen) == (2.0**-30, 0.0)


# --- planting -----------------------------------------------------------------------


def test_an_error_is_planted_with_one_rounding(scripts: Any) -> None:
    plant = scripts["planting"].Plant(
        step=0, phase="variable", variable="w", replicas=(0,), factor=1 + 1e-3
    )
    value = np.array([[1.0, 3.0]], np.float32)
    changed = plant.change(value)
    np.testing.assert_array_equal(changed, np.float32(np.float64(value) * (1 + 1e-3)))
    assert changed.dtype == np.float32
    one = replace(plant, factor=1.0, element=1, error=0.5).change(value)
    np.testing.assert_array_equal(one, [[1.0, 3.5]])


def test_a_scalar_takes_an_error(scripts: Any) -> None:
    plant = scripts["planting"].Plant(
        step=0, phase="loss", variable="", replicas=(1,), element=0, error=0.25
    )
    assert plant.change(np.array(1.0, np.float32)) == np.float32(1.25)


def test_the_ring_starts_each_chunk_in_another_task(scripts: Any) -> None:
    # A chunk has at least 64 bytes. 1 + 2**-24 is rounded away, and 2**-23 is not.
    big, small = np.float32(1), np.float32(2.0**-24)
    parts = [np.full(48, x, np.float32) for x in (big, small, small)]
    total = scripts["planting"].add_in_ring(parts)
    assert set(total[:16]) == {big}
    assert set(total[16:32]) == {big + 2 * small}
    assert set(total[32:]) == {big}


def test_tasks_are_ranked_by_name_and_variables_joined_backwards(scripts: Any) -> None:
    values = np.float32([1, 2.0**-24, 2.0**-24] + [0] * 8)
    gradients = [
        {"w": np.full(16, value), "b": np.full(16, 2 * value)} for value in values
    ]
    total = scripts["planting"].reduce_gradients(gradients)
    ranks = sorted(range(11), key=str)
    flat = [np.concatenate([gradients[r]["b"], gradients[r]["w"]]) for r in ranks]
    expected = scripts["planting"].add_in_ring(flat)
    np.testing.assert_array_equal(total["b"], expected[:16])
    np.testing.assert_array_equal(total["w"], expected[16:])
    assert ranks[2] == 10


STEPS, REPLICAS = 3, 2
RATE, MOMENTUM = 0.1, 0.9


class Recorder:
    """Values of one trace, put down by phase."""

    def __init__(self, *holders: int) -> None:
        self.holders = holders
        self.values: dict[TraceKey, Any] = {}

    def put(self, step: int, phase: Phase, value: Any, *replicas: int) -> None:
        variable = {"loss": "", "slot": "m"}.get(phase, "w")
        for replica in replicas or self.holders:
            key = TraceKey(step=step, phase=phase, variable=variable, replica=replica)
            self.values[key] = np.array(value, np.float32)

    def make_trace(self) -> Trace:
        infos = (
            VariableInfo(path="w", role="variable", shape=(3,), dtype="float32"),
            VariableInfo(path="m", role="slot", shape=(3,), dtype="float32", of="w"),
        )
        return Trace(
            name="made up",
            replicas=REPLICAS,
            shards=(5, 3),
            variables=infos,
            values=self.values,
        )


def make_evidence(scripts: Any) -> Evidence:
    """Momentum on two replicas with gradients out of the air, in the bounded tier."""
    rule = scripts["planting"].Rule(rate=RATE, momentum=MOMENTUM)
    rng = np.random.default_rng(1)
    reference, twin = Recorder(WHOLE), Recorder(WHOLE)
    observed, replay = Recorder(0, 1), Recorder(0, 1)
    everywhere = (reference, twin, observed, replay)
    variable, slot = np.float32(rng.normal(size=3)), np.zeros(3, np.float32)
    for step in range(INITIAL, STEPS):
        if step > INITIAL:
            local = np.float32(rng.normal(size=(REPLICAS, 3)))
            total = local[0] + local[1]
            slot = rule.move_slot(slot, total)
            variable = rule.move(variable, slot, total)
            for recorder in everywhere:
                recorder.put(step, "reduced_gradient", total)
                recorder.put(step, "applied_gradient", total)
            for recorder in (reference, twin):
                recorder.put(step, "local_gradient", total)
                recorder.put(step, "loss", 3)
            for replica in range(REPLICAS):
                for recorder in (reference, observed):
                    recorder.put(step, "local_gradient", local[replica], replica)
                    recorder.put(step, "loss", 1 + replica, replica)
        for recorder in everywhere:
            recorder.put(step, "variable", variable)
            recorder.put(step, "slot", slot)
    return Evidence(
        tier="bounded",
        observed=observed.make_trace(),
        reference=reference.make_trace(),
        twins=(twin.make_trace(),) * 3,
        fed=Fed(replays={"reduced_gradient": replay.make_trace()}),
    )


@pytest.fixture(scope="module")
def propagation(scripts: Any) -> Any:
    rule = scripts["planting"].Rule(rate=RATE, momentum=MOMENTUM)
    return scripts["planting"].Propagation(make_evidence(scripts), rule)


def test_a_clean_step_comes_out_bit_for_bit(propagation: Any) -> None:
    for step in range(STEPS):
        assert propagation.proves(step) == {"sum": True, "update": True}


def test_another_rule_does_not_prove_itself(scripts: Any, propagation: Any) -> None:
    other = scripts["planting"].Rule(rate=RATE, momentum=MOMENTUM / 2)
    wrong = scripts["planting"].Propagation(propagation.evidence, other)
    assert wrong.proves(1) == {"sum": True, "update": False}


def plant_in(scripts: Any, propagation: Any, phase: Phase, **changes: Any) -> Evidence:
    variable = {"loss": "", "slot": "m"}.get(phase, "w")
    replicas = (1,) if phase in ("loss", "local_gradient") else (0, 1)
    plant = scripts["planting"].Plant(
        step=1, phase=phase, variable=variable, replicas=replicas, **changes
    )
    return propagation.plant(plant)


def list_changed(clean: Trace, planted: Trace) -> set[tuple[str, int]]:
    return {
        (key.phase, key.replica)
        for key, value in planted.values.items()
        if np.asarray(value).tobytes() != np.asarray(clean.values[key]).tobytes()
    }


LATER = ("reduced_gradient", "applied_gradient", "slot", "variable")


@pytest.mark.parametrize("phase", LATER)
def test_an_error_changes_what_comes_after_it(
    scripts: Any, propagation: Any, phase: Phase
) -> None:
    planted = plant_in(scripts, propagation, phase, factor=1.5)
    changed = list_changed(propagation.evidence.observed, planted.observed)
    later = LATER[LATER.index(phase) :]
    assert changed == {(name, r) for name in later for r in range(REPLICAS)}


def test_one_replicas_gradient_changes_everybodys_sum(
    scripts: Any, propagation: Any
) -> None:
    planted = plant_in(scripts, propagation, "local_gradient", factor=1.5)
    changed = list_changed(propagation.evidence.observed, planted.observed)
    assert ("local_gradient", 0) not in changed
    assert {("local_gradient", 1), ("variable", 0), ("variable", 1)} <= changed


def test_a_loss_changes_nothing_else(scripts: Any, propagation: Any) -> None:
    planted = plant_in(scripts, propagation, "loss", factor=1.5)
    changed = list_changed(propagation.evidence.observed, planted.observed)
    assert changed == {("loss", 1)}


def test_the_replays_are_those_that_the_bench_would_make(
    scripts: Any, propagation: Any
) -> None:
    plant = plant_in(scripts, propagation, "reduced_gradient", factor=1.5)
    assert set(plant.fed.replays) == {"reduced_gradient"}
    applied = plant_in(scripts, propagation, "applied_gradient", factor=1.5)
    phases = {"reduced_gradient", "applied_gradient", "local_gradient"}
    assert set(applied.fed.replays) == phases
    key = TraceKey(step=1, phase="variable", variable="w", replica=0)
    follows = applied.fed.replays["applied_gradient"].values[key]
    np.testing.assert_array_equal(follows, applied.observed.values[key])
    variable = plant_in(scripts, propagation, "variable", factor=1.5)
    assert set(variable.fed.replays) == {"reduced_gradient", "local_gradient"}


@pytest.mark.parametrize("phase", ["loss", "local_gradient", *LATER])
def test_a_planted_error_is_reported_where_it_is(
    scripts: Any, propagation: Any, phase: Phase
) -> None:
    judgement = judge(plant_in(scripts, propagation, phase, factor=1.01))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == phase
    assert judgement.findings[0].step == 1


def test_nothing_planted_is_nothing_found(scripts: Any, propagation: Any) -> None:
    assert not judge(plant_in(scripts, propagation, "variable")).findings


def test_a_place_measures_its_threshold(scripts: Any, propagation: Any) -> None:
    from distbench.compare.state.measured_noise import measure_noise

    place = scripts["sensitivity_places"].Place(
        propagation=propagation,
        noise=measure_noise(propagation.evidence),
        steps=STEPS,
        step=1,
        phase="variable",
        variable="w",
    )
    row = scripts["sensitivity"].measure_place(place, "factor")
    assert 2.0**-26 < row["seen"] < 2.0**-22
    assert row["target"]
    tight, middle, wide = row["allclose"]
    assert row["seen"] < tight < middle < wide


def test_fewer_steps_keep_their_values(scripts: Any, propagation: Any) -> None:
    short = scripts["sensitivity_places"].keep_steps(propagation.evidence, 2)
    assert short.observed.steps == 2
    assert all(twin.steps == 2 for twin in short.twins)
    assert judge(short).status is Status.PASS


def test_the_worst_of_a_place_is_kept(scripts: Any) -> None:
    row = {
        "workload": "linear",
        "replicas": 2,
        "steps": 3,
        "step": 1,
        "phase": "loss",
        "kind": "factor",
    }
    rows = [{**row, "seen": seen} for seen in (1e-7, None, 1e-3)]
    assert scripts["sensitivity"].keep_worst(rows) == [{**row, "seen": None}]
