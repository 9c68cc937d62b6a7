"""The finding of a verdict that a script is to show, with all that it takes.

A verdict may come from anywhere: what it says is checked here; nothing of it is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.codes import find_code
from distbench.errors import BadInputError
from distbench.scenario import Scenario
from distbench.scenario.choices import MODEL, PIPELINE, WORKLOADS
from distbench.target import TargetRef, parse_target
from distbench.verdict import Finding, Outcome, Run, Status, Verdict

PHASES = ("variable", "slot", "iterations", "loss")
"""Phases that an outcome can be of."""

_COUNTED = ("examples-repeated", "examples-missed")
_SHRINK = "'distbench shrink' looks for a scenario without."
_AGAIN = "Check the subject again with 'distbench check --json FILE'."


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One finding, and the scenario that shows it.

    Attributes:
        run: The run that has it.
        finding: The finding, the first one of its run.
        scenario: What was run, as far as the verdict tells.
        spec: Its cluster.
        target: Where the subject is.
    """

    run: Run
    finding: Finding
    scenario: Scenario
    spec: ClusterSpec
    target: TargetRef

    @property
    def outcome(self) -> Outcome | None:
        """The number to show; None where the cluster raises or examples are counted."""
        return self.finding.outcome

    @property
    def counts_examples(self) -> bool:
        """Whether what is wrong is how often examples come, and no number."""
        return self.outcome is None and self.finding.code in _COUNTED

    @property
    def has_other_examples(self) -> bool:
        """Whether it is that replicas read what one device does not have as it is."""
        return self.finding.code == "examples-missed" and bool(self.finding.replicas)

    @property
    def raises(self) -> bool:
        """Whether what is wrong is that the cluster raises."""
        return self.outcome is None and not self.counts_examples

    @property
    def steps(self) -> int:
        """Steps to train until the number is wrong; of steps in flight all rounds.

        In which round a race shows is chance.
        """
        if self.scenario.in_flight > 1:
            return self.scenario.steps
        place = self.outcome or self.finding
        return max(1, place.step + 1)

    @property
    def resized(self) -> dict[int, tuple[int, ...]]:
        """Examples of each replica in those of the steps with another batch size."""
        found = _take(self.run, self.run.setup.get("resized", {}), "resized", dict)
        sizes = {
            int(step): tuple(_take(self.run, n, "resized", int) for n in shares)
            for step, shares in found.items()
            if _take(self.run, step, "resized", str).isdecimal()
        }
        return {step: sizes[step] for step in sizes if step < self.steps}

    @property
    def bound(self) -> float:
        """How far a right number may be off: in each step by as much as in the last."""
        return self.steps * self.outcome.bound if self.outcome else 0.0


def pick_case(verdict: Verdict, only: str | None = None) -> Case:
    """The first finding of a verdict that a script can show.

    Args:
        verdict: From anywhere.
        only: Id of the scenario whose finding is wanted; None takes the first.

    Raises:
        BadInputError: There is none; it says why the first one is none.
    """
    reasons: list[BadInputError] = []
    for run in list_failed(verdict, only):
        finding = next(f for f in run.findings if not f.warning)
        try:
            return _make_case(verdict, run, finding)
        except BadInputError as error:
            reasons.append(error)
    raise reasons[0]


def _check_shown(run: Run, scenario: Scenario, outcome: Outcome | None) -> None:
    is_read = scenario.workload == PIPELINE
    saver = scenario.restore_from
    found = {
        "an input pipeline of parameter servers": is_read
        and scenario.spec.traits.scheduled,
        f"what {saver} saved": saver and not ClusterSpec.parse(saver).traits.single,
        "a checkpoint and an input pipeline": saver and is_read,
        "a checkpoint and steps in flight": saver and scenario.in_flight > 1,
        "what slots in shards hold": scenario.partitioner
        and outcome is not None
        and outcome.phase == "slot"
        and outcome.index < 0,
        "batches of several sizes in 'fit'": run.setup.get("resized")
        and scenario.workload == MODEL,
        "an injected fault": scenario.faults,
        "random numbers that its steps were given": scenario.given_draws,
    }
    advice = {what: _SHRINK for what, is_needed in found.items() if is_needed}
    if scenario.loss_weight != 1 and scenario.workload not in WORKLOADS:
        advice["gradients that are multiplied as tapes give them"] = (
            f"Multiply the losses that the subject differentiates by "
            f"{scenario.loss_weight:g}, check that and ask for its script."
        )
    for what, how in advice.items():
        raise BadInputError(
            f"Run '{run.scenario}' depends on {what}, which a script of its own "
            f"cannot show. {how}"
        )


def _make_case(verdict: Verdict, run: Run, finding: Finding) -> Case:
    """A finding with its scenario, checked.

    Raises:
        BadInputError: The verdict says things that cannot be, or too little.
    """
    find_code(_take(run, finding.code, "code", str))
    _take(run, finding.step, "step", int)
    scenario = read_scenario(verdict, run)
    outcome = finding.outcome
    _check_shown(run, scenario, outcome)
    if outcome is not None:
        _check_outcome(outcome)
    elif finding.code not in ("raises", *_COUNTED):
        raise BadInputError(
            f"Finding '{finding.code}' of run '{run.scenario}' names no number that "
            "one device and the cluster have both, so no script can hold them against "
            "each other. 'distbench debug VERDICT.json' stops at the value."
        )
    return Case(
        run=run,
        finding=finding,
        scenario=scenario,
        spec=scenario.spec,
        target=find_target(scenario.target),
    )


def read_scenario(verdict: Verdict, run: Run) -> Scenario:
    """The scenario of a run.

    Raises:
        BadInputError: The verdict does not have it, or it cannot be.
    """
    _take(run, run.tier, "tier", str)
    setup = run.setup
    if not isinstance(setup, Mapping) or not setup:
        raise BadInputError(
            f"Run '{run.scenario}' does not say with which steps, seed and dtype it "
            f"was made (key 'setup'): an older distbench wrote it. {_AGAIN}"
        )
    texts = {
        "target": _take(run, setup.get("target", verdict.target), "target", str),
        "workload": _take(run, run.workload, "workload", str),
        "cluster": _take(run, run.cluster, "cluster", str),
        "path": _take(run, run.path, "path", str),
        "dtype": _take(run, setup.get("dtype"), "dtype", str),
        "restore_from": _take(run, setup.get("restore_from"), "restore_from", str),
        "partitioner": _take(run, setup.get("partitioner", ""), "partitioner", str),
        "restore_partitioner": _take(
            run, setup.get("restore_partitioner", ""), "restore_partitioner", str
        ),
    }
    split = _take(run, setup.get("split"), "split", list)
    faults = _take(run, setup.get("faults", []), "faults", list)
    keras, jit = setup.get("keras"), setup.get("jit")
    return Scenario(
        **texts,
        steps=_take(run, setup.get("steps"), "steps", int),
        seed=_take(run, setup.get("seed"), "seed", int),
        timeout_s=float(_take(run, setup.get("timeout_s"), "timeout_s", (int, float))),
        keras=None if keras is None else _take(run, keras, "keras", str),
        examples=_take(run, setup.get("examples", 0), "examples", int),
        restore_after=_take(run, setup.get("restore_after", 0), "restore_after", int),
        in_flight=_take(run, setup.get("in_flight", 1), "in_flight", int),
        jit=None if jit is None else _take(run, jit, "jit", bool),
        op_determinism=_take(
            run, setup.get("op_determinism", False), "op_determinism", bool
        ),
        given_draws=_take(run, setup.get("given_draws", False), "given_draws", bool),
        loss_weight=float(
            _take(run, setup.get("loss_weight", 1.0), "loss_weight", (int, float))
        ),
        faults=tuple(_take(run, fault, "faults", str) for fault in faults),
        split=tuple(_take(run, size, "split", int) for size in split),
    )


def find_target(label: str) -> TargetRef:
    """Where a subject is.

    Raises:
        BadInputError: It was no target but an object, or its file is not here.
    """
    if ":" not in label:
        raise BadInputError(
            f"The subject {label!r} was handed over as an object, so a script cannot "
            "import it. Expected 'package.module:attribute' or "
            "'path/to/file.py:attribute'. Put it into a file and check it by that name."
        )
    return parse_target(label)


def list_failed(verdict: Verdict, only: str | None) -> Iterator[Run]:
    """The runs with a finding, all or those of one scenario.

    Raises:
        BadInputError: There is none.
    """
    failed = [
        run
        for run in verdict.runs
        if run.status is Status.FAIL and any(not f.warning for f in run.findings)
    ]
    if not failed:
        raise BadInputError(
            f"The verdict on '{verdict.target}' has no finding to show. "
            f"Expected a run that failed. Received: {verdict.status}."
        )
    chosen = [run for run in failed if only in (None, run.scenario)]
    if not chosen:
        ids = ", ".join(dict.fromkeys(run.scenario for run in failed))
        raise BadInputError(
            f"No failed run has the id {only!r}. Expected one of {ids}."
        )
    yield from chosen


def _take(run: Run, value: Any, name: str, kind: Any) -> Any:
    """A value of JSON, if it is of the kind that it must be."""
    is_flag = isinstance(value, bool) and kind is not bool
    if isinstance(value, kind) and not is_flag:
        return value
    names = kind if isinstance(kind, tuple) else (kind,)
    raise BadInputError(
        f"Run '{run.scenario}': '{name}' must be of type "
        f"{' or '.join(k.__name__ for k in names)}. Received: {value!r}."
    )


def _check_outcome(outcome: Outcome) -> None:
    integers = (outcome.step, outcome.index, outcome.replica, *outcome.element)
    numbers = (outcome.expected, outcome.observed, outcome.bound)
    ok = (
        outcome.phase in PHASES
        and isinstance(outcome.variable, str)
        and all(type(number) is int for number in integers)
        and all(type(number) in (int, float) for number in numbers)
        and outcome.step >= 0
        and 0 <= outcome.bound < float("inf")
        and (outcome.phase != "variable" or outcome.index >= 0)
    )
    if not ok:
        raise BadInputError(
            f"The outcome of a finding must name a phase of {', '.join(PHASES)}, a "
            f"step, a variable with its index, and numbers. Received: {outcome}. "
            f"{_AGAIN}"
        )
