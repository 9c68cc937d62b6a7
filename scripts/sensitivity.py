"""Measure the smallest fault that the bench still reports.

Real clusters train correctly and record what they do. Into a copy of one recorded value
an error is planted, what follows from it in the same step is computed anew (see
`planting`; shown to give the clean run's bits first), and the bench judges. The
smallest error that it reports is found by bisection, and laid beside the smallest that
`np.allclose` sees on the same two arrays with the tolerances of TensorFlow's own
tests. In the exact tier every element is moved by one unit in the last place.

To be fast, only what the error can change is judged, with the noise of the whole run.
At each threshold `judge` itself confirms both sides on all values of the step, and once
for every run on all steps. Some thresholds are confirmed by a cluster that runs an
optimizer with the error in its code.

    scripts/sensitivity                     # 15 minutes; docs/measured/sensitivity.json
    scripts/sensitivity --replicas 2 --json /tmp/two.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measured import FOLDER, describe_place, write_figures
from planting import Propagation
from sensitivity_optimizers import RULES, make_optimizer, make_planted
from sensitivity_places import STEPS, Place, list_places
from thresholds import find_threshold

import distbench
from distbench.cluster import ClusterSpec
from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch, observe
from distbench.scenario import Scenario
from distbench.target import write_pickled_target
from distbench.verdict import Finding, Status

TARGET = 1e-6
"""A factor of 1 plus this must be reported."""
TOLERANCES = (
    (1e-6, "tensorflow/python/framework/test_util.py: assertAllClose, its default"),
    (
        4e-5,
        "tf_keras/src/distribute/keras_correctness_test_base.py: compare_results, "
        "the default",
    ),
    (
        1e-3,
        "tf_keras/src/distribute/keras_correctness_test_base.py: compare_results, "
        "where replicas get shards of different sizes",
    ),
)
"""rtol and atol of tests of distribution strategies, and where they are written."""
CONFIRMED = ("reduced_gradient", "applied_gradient", "slot", "variable")
"""Phases that an optimizer can spoil by itself."""
_UNIT = 2.0**-23
_TABLES = ("proofs", "bounded", "exact", "confirmed")

Row = dict[str, Any]


def observe_clean(
    workload: str, optimizer: str, replicas: int, tiers: Sequence[str]
) -> Mapping[str, Evidence]:
    """What a correct run on a cluster recorded, by tier."""
    with RunDirectory() as directory:
        target = write_pickled_target(
            make_optimizer(optimizer), directory.path, optimizer
        )
        scenario = Scenario(
            target=optimizer,
            workload=workload,
            cluster=f"mwms:{replicas}",
            steps=STEPS,
            timeout_s=1800.0,
        )
        spec = ClusterSpec.parse(scenario.cluster).resolve(gpus=0, cpus=1)
        # A replica in which an error is planted is one that its shard has to answer.
        launch = Launch(directory=directory, rerun=True)
        seen = observe(target, scenario, spec, tuple(tiers), launch)  # type: ignore[arg-type]  # names of tiers
    if seen.failure is not None:
        raise seen.failure
    return {str(tier): evidence for tier, evidence in seen.evidence.items()}


def measure_place(place: Place, kind: str) -> Row:
    """The smallest visible error, for the bench and for `np.allclose`.

    Raises:
        AssertionError: `judge` does not confirm what was found.
    """
    found = find_threshold(partial(place.is_reported, kind))
    finding: Sequence[Finding] = ()
    if found is not None:
        above = place.judge_error(kind, found.seen)
        below = place.judge_error(kind, found.unseen)
        finding = above.findings
        if (above.status is Status.FAIL, below.status is Status.FAIL) != (True, False):
            raise AssertionError(
                f"judge says {above.status} and {below.status} of {found}, {place.key}"
            )
    seen_by = [
        find_threshold(partial(place.is_far, kind, tolerance))
        for tolerance, _ in TOLERANCES
    ]
    return {
        "kind": kind,
        "seen": None if found is None else found.seen,
        "unseen": None if found is None else found.unseen,
        "code": finding[0].code if finding else "",
        "found_in": finding[0].phase if finding else "",
        "target": place.is_reported(kind, TARGET),
        "allclose": [None if one is None else one.seen for one in seen_by],
    }


def measure_bounded(places: Iterator[Place]) -> Iterator[Row]:
    """Thresholds of the bounded tier."""
    for place in places:
        kinds = ("factor",) if place.phase == "loss" else ("factor", "element")
        for kind in kinds:
            yield {
                "steps": place.steps,
                "step": place.step,
                "phase": place.phase,
                "variable": place.variable,
                **measure_place(place, kind),
            }


def measure_exact(places: Iterator[Place]) -> Iterator[Row]:
    """Whether one unit in the last place of any one element is reported."""
    for place in places:
        value = place.value.reshape(-1)
        units = np.nextafter(value, np.float32(np.inf)) - value
        plants = [
            replace(place.make("element", 0.0), element=number, error=float(unit))
            for number, unit in enumerate(units)
        ]
        yield {
            "steps": place.steps,
            "step": place.step,
            "phase": place.phase,
            "variable": place.variable,
            "elements": len(plants),
            "seen": sum(bool(place.list_faults(plant)) for plant in plants),
            "factor_seen": place.is_reported("factor", _UNIT),
        }


def check_whole(evidence: Evidence, rows: Sequence[Row], place: Place) -> bool:
    """Whether all steps together give the same answers as the planted step alone."""
    row = next(
        r
        for r in rows
        if (r["step"], r["phase"], r["variable"], r["kind"])
        == (place.step, place.phase, place.variable, "factor")
        and r["steps"] == STEPS
    )
    answers = []
    for size in (row["seen"], row["unseen"]):
        part = place.propagation.plant(place.make("factor", size))
        observed = {**evidence.observed.values, **part.observed.values}
        replays = {
            phase: replace(
                trace,
                values={
                    **getattr(evidence.fed.replays.get(phase), "values", {}),
                    **trace.values,
                },
            )
            for phase, trace in part.fed.replays.items()
        }
        whole = replace(
            evidence,
            observed=replace(evidence.observed, values=observed),
            fed=replace(evidence.fed, replays=replays),
        )
        answers.append(judge(whole).status)
    return answers == [Status.FAIL, Status.PASS]


def prove(propagation: Propagation) -> dict[str, int]:
    """In how many steps sum and update come out bit for bit."""
    proofs = [propagation.proves(step) for step in range(STEPS)]
    return {name: sum(proof[name] for proof in proofs) for name in ("sum", "update")}


def measure_run(workload: str, optimizer: str, replicas: int) -> dict[str, list[Row]]:
    """Everything about one scenario."""
    tiers = ("exact", "bounded") if workload == "linear" else ("bounded",)
    found: dict[str, list[Row]] = {"proofs": [], "bounded": [], "exact": []}
    name = {"workload": workload, "optimizer": optimizer, "replicas": replicas}
    evidences = observe_clean(workload, optimizer, replicas, tiers)
    for tier, evidence in evidences.items():
        propagation = Propagation(evidence, RULES[optimizer])
        proof = prove(propagation)
        proved = {part: steps == STEPS for part, steps in proof.items()}
        places = list_places(evidence, optimizer, workload, proved)
        measure = measure_exact if tier == "exact" else measure_bounded
        rows = [{**name, **row} for row in measure(places)]
        found[tier] += rows
        same = None
        if tier == "bounded" and proved["update"]:
            *_, last = list_places(evidence, optimizer, workload, proved)
            same = check_whole(evidence, rows, last)
        found["proofs"].append(
            {**name, "tier": tier, "steps": STEPS, **proof, "whole_run_agrees": same}
        )
    return found


def confirm(rows: Sequence[Row]) -> Iterator[Row]:
    """Run clusters with twice and half of the thresholds of a check of three steps."""
    clean: dict[int, Evidence] = {}
    for row in rows:
        chosen = (row["workload"], row["optimizer"], row["steps"], row["variable"])
        if chosen != ("linear", "momentum", 3, "kernel") or row["seen"] is None:
            continue
        if row["phase"] not in CONFIRMED or row["replicas"] > 8:
            continue
        replicas = row["replicas"]
        if replicas not in clean:
            found = observe_clean("linear", "momentum", replicas, ("bounded",))
            clean[replicas] = found["bounded"]
        place = Place(
            propagation=Propagation(clean[replicas], RULES["momentum"]),
            noise=measure_noise(clean[replicas]),
            steps=3,
            step=row["step"],
            phase=row["phase"],
            variable="kernel",
        )
        yield {
            **{name: row[name] for name in ("replicas", "phase", "kind", "seen")},
            "twice": run_planted(place, row["kind"], 2 * row["seen"]),
            "half": run_planted(place, row["kind"], row["seen"] / 2),
        }


def run_planted(place: Place, kind: str, size: float) -> str:
    """Check an optimizer with the error in its code; what came out, in words."""
    plant = replace(place.make(kind, size), variable=place.variable)
    verdict = distbench.check(
        make_planted(plant),
        f"mwms:{len(place.replicas)}",
        workload="linear",
        tier="bounded",
    )
    first = next((f for run in verdict.runs for f in run.findings), None)
    if first is None:
        return str(verdict.status)
    return f"{verdict.status}: {first.code}, step {first.step}, {first.phase}"


def keep_worst(rows: Sequence[Row]) -> list[Row]:
    """Of the variables and optimizers of a place only the one that hides most."""
    kept: dict[tuple[Any, ...], Row] = {}
    names = ("workload", "replicas", "steps", "step", "phase", "kind")
    for row in rows:
        place = tuple(row[name] for name in names)
        other = kept.get(place)
        if other is None or _measure_hidden(row) > _measure_hidden(other):
            kept[place] = row
    return list(kept.values())


def _measure_hidden(row: Row) -> float:
    return float("inf") if row["seen"] is None else float(row["seen"])


def describe(row: Row) -> str:
    """One line."""
    where = (
        f"{row['workload']} {row['optimizer']} N={row['replicas']} step {row['step']} "
        f"of {row['steps']} {row['phase']} {row['variable']}"
    )
    if "elements" in row:
        return f"{where}: {row['seen']} of {row['elements']} elements, one unit"
    seen = "never" if row["seen"] is None else f"{row['seen']:.3g}"
    beside = ", ".join("never" if s is None else f"{s:.2g}" for s in row["allclose"])
    return f"{where}, {row['kind']}: {seen} ({row['code']}); allclose {beside}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--workloads", nargs="+", default=["linear", "mlp"])
    parser.add_argument(
        "--json", type=Path, default=FOLDER / "sensitivity.json", metavar="FILE"
    )
    options = parser.parse_args(arguments)
    begin_s = time.monotonic()
    found: dict[str, list[Row]] = {name: [] for name in _TABLES}

    def save() -> None:
        seconds = round(time.monotonic() - begin_s)
        write_figures(options.json, make_document(found, seconds))

    for replicas in options.replicas:
        for workload in options.workloads:
            for optimizer in RULES:
                for name, rows in measure_run(workload, optimizer, replicas).items():
                    found[name] += rows
                    for row in rows:
                        print(row if name == "proofs" else describe(row), flush=True)
                save()
    for row in confirm(found["bounded"]):
        print(row, flush=True)
        found["confirmed"].append(row)
    save()


def make_document(found: Mapping[str, Sequence[Row]], seconds: int) -> Row:
    """All figures."""
    return {
        "schema": "distbench/sensitivity/1",
        "place": describe_place(),
        "seconds": seconds,
        "target": TARGET,
        "tolerances": [
            {"tolerance": value, "source": source} for value, source in TOLERANCES
        ],
        **found,
        "bounded": keep_worst(found["bounded"]),
    }


if __name__ == "__main__":
    main()
