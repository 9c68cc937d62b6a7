"""The arithmetic of `scripts/sensitivity` and `scripts/soak`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imported_scripts import import_scripts
from tallied import make_comparison

from distbench.cluster import ClusterSpec
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.scenario import DTYPES
from distbench.trace import INITIAL, WHOLE, Phase, Trace, TraceKey, VariableInfo
from distbench.unusual import UNUSUAL
from distbench.verdict import Status

ROOT = Path(__file__).parents[2]
NAMES = (
    "measured",
    "planting",
    "tally",
    "sensitivity_optimizers",
    "sensitivity_places",
    "sensitivity",
    "soak_draws",
    "soak_counts",
    "soak",
)


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, Any]]:
    with import_scripts(*NAMES) as modules:
        yield modules


# --- bisecting ----------------------------------------------------------------------


@pytest.mark.parametrize("true", [3.3e-9, 2.0**-21, 1.7e-5, 0.3, 40.0])
def test_the_smallest_visible_error_is_found(scripts: Any, true: float) -> None:
    found = scripts["planting"].find_threshold(lambda size: size >= true)
    assert found.unseen < true <= found.seen
    assert found.seen / found.unseen < 1.05


def test_what_is_never_seen_has_no_threshold(scripts: Any) -> None:
    assert scripts["planting"].find_threshold(lambda _: False) is None


def test_what_is_always_seen_stops_at_the_floor(scripts: Any) -> None:
    found = scripts["planting"].find_threshold(lambda _: True, floor=2.0**-30)
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
        replays={"reduced_gradient": replay.make_trace()},
        twins=(twin.make_trace(),) * 3,
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
    assert set(plant.replays) == {"reduced_gradient"}
    applied = plant_in(scripts, propagation, "applied_gradient", factor=1.5)
    phases = {"reduced_gradient", "applied_gradient", "local_gradient"}
    assert set(applied.replays) == phases
    key = TraceKey(step=1, phase="variable", variable="w", replica=0)
    follows = applied.replays["applied_gradient"].values[key]
    np.testing.assert_array_equal(follows, applied.observed.values[key])
    variable = plant_in(scripts, propagation, "variable", factor=1.5)
    assert set(variable.replays) == {"reduced_gradient", "local_gradient"}


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
    from distbench.compare.noise import measure_noise

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


# --- counting -----------------------------------------------------------------------


def test_quantiles_are_right_to_a_bin(scripts: Any) -> None:
    tally = scripts["tally"].Tally()
    for k in range(1, 1001):
        tally.add(make_comparison(k / 1000))
    for share in (0.5, 0.9, 0.99):
        assert tally.find_quantile(share) == pytest.approx(share, rel=0.024)
    assert tally.find_quantile(1.0) == tally.largest == 1.0


def test_equal_bits_count_as_no_error(scripts: Any) -> None:
    tally = scripts["tally"].Tally()
    for quotient in (0.0, 0.0, 0.0, 0.5):
        tally.add(make_comparison(quotient))
    figures = tally.to_json()
    assert (figures["compared"], figures["equal"]) == (4, 3)
    assert figures["median"] == 0.0
    assert figures["largest"] == 0.5


def test_a_value_outside_of_its_bound_is_counted_apart(scripts: Any) -> None:
    tally = scripts["tally"].Tally()
    tally.add(make_comparison(math.inf))
    tally.add(make_comparison(0.5))
    assert tally.to_json()["wrong"] == 1
    assert tally.largest == 0.5
    json.dumps(tally.to_json(), allow_nan=False)


def test_a_bound_that_is_never_used_is_loose(scripts: Any) -> None:
    bitwise, loose = scripts["tally"].Tally(), scripts["tally"].Tally()
    bitwise.add(make_comparison(0.0, bound=0.0))
    loose.add(make_comparison(1e-4))
    assert loose.loose
    assert not bitwise.loose


@pytest.mark.parametrize(
    ("events", "trials", "limit"),
    [
        # R: binom.test(k, n, alternative = "less")$conf.int[2]
        (0, 10, 0.2588656),
        (1, 10, 0.3941633),
        (5, 100, 0.1022534),
        (10, 10, 1.0),
    ],
)
def test_the_limit_of_a_rate(
    scripts: Any, events: int, trials: int, limit: float
) -> None:
    assert scripts["tally"].limit_rate(events, trials) == pytest.approx(limit, rel=1e-4)


def test_without_events_three_over_n(scripts: Any) -> None:
    n = 1_000_000
    expected = -math.log(0.05) / n
    assert scripts["tally"].limit_rate(0, n) == pytest.approx(expected, rel=1e-4)


def test_a_run_is_drawn_from_its_number_alone(scripts: Any) -> None:
    draws = [scripts["soak_draws"].draw_run(7, number) for number in range(200)]
    assert draws[150] == scripts["soak_draws"].draw_run(7, 150)
    assert draws[150] != scripts["soak_draws"].draw_run(8, 150)
    # All of them are scenarios, and everything is drawn at some time.
    assert {draw.scenario.spec.kind for draw in draws} == set(
        scripts["soak_draws"].KINDS
    )
    assert {draw.dtype for draw in draws} == set(DTYPES)
    assert not any(draw.path == "none" for draw in draws)


def test_an_own_optimizer_is_there(scripts: Any) -> None:
    for name, factory in scripts["soak_draws"].OWN.items():
        text = (ROOT / "scenarios" / "optimizers" / f"{name}.py").read_text()
        assert f"def {factory}()" in text


def test_the_command_names_all_that_was_drawn(scripts: Any) -> None:
    draw = scripts["soak_draws"].Draw(
        number=1,
        target="tf_keras.optimizers.legacy:Adam",
        workload="mlp",
        cluster="mwms:3",
        path="user",
        dtype="float16",
        seed=5,
        steps=2,
    )
    assert draw.command == (
        "distbench check tf_keras.optimizers.legacy:Adam -c mwms:3 --workload mlp "
        "--path user --dtype float16 --seed 5 --steps 2 --tier exact --tier bounded "
        "--tier free"
    )


def test_unusual_programs_are_drawn_on_strategies_they_are_for(scripts: Any) -> None:
    kinds = {
        sample.target: {ClusterSpec.parse(spec).kind for spec in sample.clusters}
        for sample in UNUSUAL
    }
    draws = [scripts["soak_draws"].draw_run(3, number) for number in range(5000)]
    unusual = [draw for draw in draws if draw.target in kinds]
    assert all(draw.scenario.spec.kind in kinds[draw.target] for draw in unusual)
    assert {draw.scenario.spec.kind for draw in unusual} == {"mirrored", "mwms"}
    assert any(kinds[draw.target] == {"mirrored"} for draw in unusual)


def test_a_plain_run_is_counted_against_the_global_batch(
    scripts: Any, propagation: Any
) -> None:
    evidence = propagation.evidence
    found = list(scripts["soak_counts"].list_comparisons(evidence, judge(evidence)))
    assert "one device, the global batch" in {c.against for c in found}
    assert not any(c.wrong for c in found)
