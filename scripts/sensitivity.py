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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measured import FOLDER, describe_place, write_figures
from planting import Array, Plant, Propagation, Rule, find_threshold, pick_middle

import distbench
from distbench.cluster import ClusterSpec
from distbench.compare.comparison import compare_evidence
from distbench.compare.noise import Noise, measure_noise
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.links import judge_chain
from distbench.diagnose.stages import explain_chain
from distbench.evidence import Evidence
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch, observe
from distbench.scenario import Scenario
from distbench.target import write_pickled_target
from distbench.trace import WHOLE, Phase, Trace, TraceKey
from distbench.verdict import Finding, Status

RATE, MOMENTUM = 0.1, 0.9
RULES = {
    "sgd": Rule(rate=RATE),
    "momentum": Rule(rate=RATE, momentum=MOMENTUM),
}
VARIABLES = {"linear": ("kernel", "bias"), "mlp": ("dense_0/kernel", "dense_2/bias")}
"""Of each workload the largest and the smallest tensor."""
STEPS = 51
PLACES = ((3, 1), (STEPS, 1), (STEPS, 50))
"""Number of steps and the step with the error; 3 steps are what a check makes."""
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


def make_optimizer(name: str) -> Callable[[], Any]:
    """A factory of a Keras optimizer with a simple rule."""
    momentum = RULES[name].momentum

    def factory() -> Any:
        import tf_keras

        return tf_keras.optimizers.legacy.SGD(RATE, momentum=momentum)

    return factory


def make_planted(plant: Plant) -> Callable[[], Any]:
    """A factory of momentum with an error in its code, which one device escapes."""
    phase, step, wanted = plant.phase, plant.step, plant.variable
    factor, element, error = plant.factor, plant.element, plant.error

    def factory() -> Any:
        import tensorflow as tf
        import tf_keras

        class Planted(tf_keras.optimizers.legacy.SGD):  # type: ignore[misc]  # untyped
            def spoil(self, here: str, value: Any, variable: Any) -> Any:
                several = tf.distribute.get_strategy().num_replicas_in_sync > 1
                name = variable.name.partition(":")[0].partition("/replica_")[0]
                if here != phase or name != wanted or not several:
                    return value
                wide = tf.cast(value, tf.float64) * factor
                if element is not None:
                    size = wide.shape.num_elements()
                    one = tf.one_hot(element, size, dtype=tf.float64)
                    wide += error * tf.reshape(one, wide.shape)
                spoiled = tf.cast(wide, value.dtype)
                return tf.where(tf.equal(self.iterations, step), spoiled, value)

            def spoil_all(self, here: str, pairs: Any) -> Any:
                return [(self.spoil(here, g, v), v) for g, v in pairs]

            def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
                pairs = list(grads_and_vars)
                sums = super()._aggregate_gradients(pairs)
                return self.spoil_all("reduced_gradient", sums)

            def _transform_gradients(self, grads_and_vars: Any) -> Any:
                pairs = super()._transform_gradients(grads_and_vars)
                return self.spoil_all("applied_gradient", pairs)

            def _resource_apply_dense(
                self, grad: Any, var: Any, apply_state: Any = None
            ) -> Any:
                del apply_state
                slot = self.get_slot(var, "momentum")
                moved = MOMENTUM * slot - RATE * grad
                slot.assign(self.spoil("slot", moved, var))
                return var.assign(self.spoil("variable", var + slot, var))

        return Planted(RATE, momentum=MOMENTUM)

    return factory


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


def keep_steps(evidence: Evidence, steps: int) -> Evidence:
    """What a run of fewer steps would have recorded.

    Each step starts from the reference's state, so it does not matter what came after.
    """

    def cut(trace: Trace) -> Trace:
        kept = {key: v for key, v in trace.values.items() if key.step < steps}
        return replace(trace, values=kept)

    return evidence.change_traces(cut)


def find_faults(evidence: Evidence, noise: Noise) -> tuple[Finding, ...]:
    """What `judge` would report, with noise that was measured before."""
    with np.errstate(all="ignore"):
        judged = compare_evidence(evidence, noise)
        infos = {v.path: v for v in evidence.observed.variables}
        chain = judge_chain(judged, infos, free=evidence.tier == "free")
        findings = explain_chain(evidence, chain)
    return tuple(finding for finding in findings if not finding.warning)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One value of a run, in which errors are planted.

    Attributes:
        propagation: Of the run, cut to its number of steps.
        noise: Of that run.
        steps: Number of steps.
        step: The step.
        phase: The phase.
        variable: The variable, `""` for the loss.
    """

    propagation: Propagation
    noise: Noise
    steps: int
    step: int
    phase: Phase
    variable: str

    @property
    def replicas(self) -> tuple[int, ...]:
        """Who shows the error: one where replicas differ anyway, else all."""
        if self.phase in ("loss", "local_gradient"):
            return (1,)
        return tuple(range(self.propagation.evidence.observed.replicas))

    @property
    def path(self) -> str:
        """What the value is called in the trace: a slot has a name of its own."""
        if self.phase == "slot":
            return self.propagation.slots[self.variable]
        return self.variable

    @property
    def key(self) -> TraceKey:
        """Where the value is."""
        return TraceKey(
            step=self.step,
            phase=self.phase,
            variable=self.path,
            replica=self.replicas[0],
        )

    @property
    def value(self) -> Array:
        """The clean value."""
        return np.asarray(self.propagation.evidence.observed.values[self.key])

    @property
    def expected(self) -> Array:
        """What the reference has there."""
        replica = self.key.replica if self.replicas == (1,) else WHOLE
        key = replace(self.key, replica=replica)
        return np.asarray(self.propagation.evidence.reference.values[key])

    def make(self, kind: str, size: float) -> Plant:
        """An error of a relative size.

        `factor`: the value times 1 + size. `element`: size times the largest absolute
        value is added to the element whose absolute value is the median.
        """
        plant = Plant(
            step=self.step,
            phase=self.phase,
            variable=self.path,
            replicas=self.replicas,
        )
        if kind == "factor":
            return replace(plant, factor=1 + size)
        return replace(
            plant,
            element=pick_middle(self.value),
            error=size * float(np.abs(self.value).max()),
        )

    def list_faults(self, plant: Plant) -> tuple[Finding, ...]:
        """What is reported of a planted error."""
        planted = self.propagation.plant(plant)
        return find_faults(narrow_evidence(planted, self), self.noise)

    def is_reported(self, kind: str, size: float) -> bool:
        """Whether an error of that size is reported."""
        return bool(self.list_faults(self.make(kind, size)))

    def is_far(self, kind: str, tolerance: float, size: float) -> bool:
        """Whether `np.allclose` sees it."""
        spoiled = self.make(kind, size).change(self.value)
        return not np.allclose(spoiled, self.expected, rtol=tolerance, atol=tolerance)

    def judge_error(self, kind: str, size: float) -> Judgement:
        """What `judge` says, which measures the noise by itself."""
        return judge(self.propagation.plant(self.make(kind, size)))


def narrow_evidence(evidence: Evidence, place: Place) -> Evidence:
    """Only what an error at a place can change, and of equal replicas two.

    That is a fiftieth of a large cluster's comparisons.
    """
    paths = {place.variable, place.propagation.slots.get(place.variable)}

    def matters(key: TraceKey) -> bool:
        if key.variable not in paths:
            return False
        return key.phase in ("loss", "local_gradient") or key.replica < 2

    values = {k: v for k, v in evidence.observed.values.items() if matters(k)}
    return replace(evidence, observed=replace(evidence.observed, values=values))


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


def list_phases(propagation: Propagation, proved: Mapping[str, bool]) -> list[Phase]:
    """Where errors are planted: only where what follows can be computed."""
    phases: list[Phase] = ["loss"]
    if not proved["update"]:
        return phases
    if proved["sum"]:
        phases.append("local_gradient")
    phases += ["reduced_gradient", "applied_gradient"]
    return [*phases, *(["slot"] if propagation.slots else []), "variable"]  # type: ignore[list-item]  # both are phases


def list_places(
    evidence: Evidence, optimizer: str, workload: str, proved: Mapping[str, bool]
) -> Iterator[Place]:
    """Every value in which an error is planted."""
    for steps, step in PLACES if evidence.tier == "bounded" else PLACES[1:]:
        part = keep_steps(evidence, steps)
        propagation = Propagation(part, RULES[optimizer])
        noise = measure_noise(part)
        for phase in list_phases(propagation, proved):
            for variable in ("",) if phase == "loss" else VARIABLES[workload]:
                yield Place(
                    propagation=propagation,
                    noise=noise,
                    steps=steps,
                    step=step,
                    phase=phase,
                    variable=variable,
                )


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
                    **getattr(evidence.replays.get(phase), "values", {}),
                    **trace.values,
                },
            )
            for phase, trace in part.replays.items()
        }
        whole = replace(
            evidence,
            observed=replace(evidence.observed, values=observed),
            replays=replays,
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
