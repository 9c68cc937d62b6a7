"""The values of a run in which errors are planted, and what is reported of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from planting import Array, Plant, Propagation, pick_middle
from sensitivity_optimizers import RULES

from distbench.compare.arrays.noise import Noise
from distbench.compare.comparison import compare_evidence
from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.stages.chain import explain_chain
from distbench.diagnose.stages.links import judge_chain
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Phase, Trace, TraceKey
from distbench.verdict import Finding

VARIABLES = {"linear": ("kernel", "bias"), "mlp": ("dense_0/kernel", "dense_2/bias")}
"""Of each workload the largest and the smallest tensor."""
STEPS = 51
PLACES = ((3, 1), (STEPS, 1), (STEPS, 50))
"""Number of steps and the step with the error; 3 steps are what a check makes."""


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
        if self.phase in COMPUTED:
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
        return key.phase in COMPUTED or key.replica < 2

    values = {k: v for k, v in evidence.observed.values.items() if matters(k)}
    return replace(evidence, observed=replace(evidence.observed, values=values))


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
