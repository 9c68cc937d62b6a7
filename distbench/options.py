"""What a check is asked to do, and how it tells of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from distbench.cluster import ClusterSpec
from distbench.codes import find_code
from distbench.engine_names import ENGINES
from distbench.errors import BadInputError, make_unknown_name_error
from distbench.fault import check_faults
from distbench.limits import PATIENCE, UNASKED_S, check_memory
from distbench.partitioner import check_partitioner, check_restore_partitioner
from distbench.scenario import Scenario
from distbench.scenario.choices import (
    FIRST_STEPS,
    TIERS,
    Tier,
    check_in_flight,
    check_loss_weight,
    check_numbers,
    check_path,
    check_restore_after,
    check_workload,
)
from distbench.spelling import spell, spell_given
from distbench.split import check_split
from distbench.typed import as_declared
from distbench.verdict import Run

START_METHODS = ("fork", "spawn")
_DEFAULT_TIERS: tuple[Tier, ...] = ("exact", "bounded")
_NAMES = ("clusters", "paths", "tiers", "workloads", "expect", "faults")
"""Options that each list things by their names."""


def find_usual_steps(spec: ClusterSpec, in_flight: int = 1) -> int:
    """How many steps a cluster takes where nobody says.

    Workers that take turns each take one, and the first another: what is wrong in one
    worker's steps alone would be missed without its own, and with no step after it
    might be wrong from then on.

    Args:
        spec: The cluster.
        in_flight: How many are scheduled before they are waited for.
    """
    if not spec.traits.scheduled or in_flight > 1:
        return FIRST_STEPS
    return max(FIRST_STEPS, spec.workers + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """Which scenarios a check runs, and how.

    Attributes:
        clusters: Cluster specs.
        paths: Aggregation paths.
        tiers: Tiers, each judged on the same processes; empty takes bounded, and exact
            where the subject can have it. Asked for by name, exact is skipped, with
            the reason, where it cannot be had.
        workloads: Workloads for an optimizer; empty takes the default ones.
        steps: Steps of each scenario; None takes three, and once more as many as all
            of its state needs to change, where one device sees it change later.
        dtype: Dtype that the workloads train in.
        seed: Seed of data and initial values.
        split: Examples of each replica; empty splits the global batch unevenly, and
            leaves it to Keras where its `fit` trains.
        only: Id of the one scenario to run.
        keras: `legacy` or `3`; None keeps the user's `TF_USE_LEGACY_KERAS`.
        jit: Whether XLA compiles the step; None leaves it to TensorFlow.
        expect: Finding codes that are meant to be found.
        require_gpus: Number of GPUs that the machine is to have: an open spec means
            what it does where there are so many, and what lacks GPUs then is an error.
            What takes CPUs there as well runs.
        timeout_s: Deadline of each cluster, in seconds; None gives it `UNASKED_S`, of
            which time in which tasks compute does not count until it is `PATIENCE`
            times as much.
        memory_gib: How much memory each task may take, in GiB; None lets the tasks of
            a cluster take together what the machine can spare.
        engine: Who starts the processes.
        allow_public: Whether the nodes of an engine may have public addresses.
        start: `fork` or `spawn`; None takes what the machine allows.
        restore_from: The cluster that trains first and saves a checkpoint, from which
            each of `clusters` goes on; None starts afresh.
        restore_after: How many steps of its own each of `clusters` trains before it
            restores; with 0 there are no slots yet.
        in_flight: How many steps a coordinator schedules before it waits for them; then
            `steps` counts how often it waits, and the tier follows from the rule: exact
            where no order of the steps matters, else bounded.
        partitioner: Into which shards parameter servers cut variables: `fixed:2`,
            `min:BYTES:SHARDS` or `max:BYTES`; None leaves them whole.
        restore_partitioner: How the cluster `restore_from` cuts its variables.
        faults: Texts of what befalls tasks and replicas, see `distbench.Fault`.
        examples: Size of the global batch of a workload; 0 leaves it to the bench.
        loss_weight: What the losses of a workload are multiplied by, so that gradients
            are larger or smaller; penalties are not. Of a program or model, what its
            tapes give.
        details: Whether runs keep the numbers that a report shows of them.
        keep: Where the traces of each scenario go; None removes them with the run.
        jobs: How many scenarios run at one time at most.
    """

    clusters: tuple[str, ...] = ("mirrored:2", "mwms:2")
    paths: tuple[str, ...] = ("default",)
    tiers: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    steps: int | None = None
    dtype: str = "float32"
    seed: int = 1
    split: tuple[int, ...] = ()
    only: str | None = None
    keras: str | None = None
    jit: bool | None = None
    expect: tuple[str, ...] = ()
    require_gpus: int = 0
    timeout_s: float | None = None
    memory_gib: float | None = None
    engine: str = "local"
    allow_public: bool = False
    start: str | None = None
    restore_from: str | None = None
    restore_after: int = 0
    in_flight: int = 1
    partitioner: str | None = None
    restore_partitioner: str | None = None
    faults: tuple[str, ...] = ()
    examples: int = 0
    loss_weight: float = 1.0
    details: bool = False
    keep: Path | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        self._take_types()
        for name in ("clusters", "paths"):
            if not getattr(self, name):
                raise BadInputError(
                    f"{spell(name)} must name at least one. Received: none."
                )
        for cluster in self.clusters:
            ClusterSpec.parse(cluster)
        self._check_restore()
        self._check_in_flight()
        check_partitioner(
            self.partitioner or "", *map(ClusterSpec.parse, self.clusters)
        )
        check_restore_partitioner(
            self.restore_partitioner or "", self.restore_from or ""
        )
        for cluster in self.clusters:
            check_faults(
                self.faults,
                ClusterSpec.parse(cluster),
                steps=self.count_steps(ClusterSpec.parse(cluster)) * self.in_flight,
                in_flight=self.in_flight,
            )
        for path in self.paths:
            check_path(path)
        for tier in self.tiers:
            if tier not in TIERS:
                raise make_unknown_name_error("Tier", tier, TIERS)
        for workload in self.workloads:
            check_workload(workload)
        for code in self.expect:
            find_code(code)
        check_numbers(
            steps=self.first_steps,
            seed=self.seed,
            timeout_s=self.deadline_s,
            dtype=self.dtype,
            keras=self.keras,
        )
        check_loss_weight(self.loss_weight)
        self._check_counts()
        self._check_shares()
        self._check_engine()

    @property
    def deadline_s(self) -> float:
        """Deadline of each cluster, in seconds."""
        return UNASKED_S if self.timeout_s is None else self.timeout_s

    @property
    def patience(self) -> float:
        """As many times as long it may take where its tasks compute."""
        return PATIENCE if self.timeout_s is None else 1.0

    @property
    def first_steps(self) -> int:
        """Steps of each scenario, to begin with."""
        return FIRST_STEPS if self.steps is None else self.steps

    def count_steps(self, spec: ClusterSpec) -> int:
        """Steps on a cluster, to begin with."""
        usual = find_usual_steps(spec, self.in_flight)
        return usual if self.steps is None else self.steps

    def _take_types(self) -> None:
        declared = get_type_hints(CheckOptions)
        for field in fields(self):
            given = getattr(self, field.name)
            value = as_declared(spell(field.name), given, declared[field.name])
            if field.name in _NAMES:
                # Who names a thing twice wants it once: two runs would have one id.
                value = tuple(dict.fromkeys(value))
            object.__setattr__(self, field.name, value)  # frozen from here on

    def _check_restore(self) -> None:
        for spec in map(ClusterSpec.parse, self.clusters):
            check_restore_after(
                self.restore_after, self.restore_from, self.count_steps(spec)
            )
        if self.restore_from is None:
            return
        ClusterSpec.parse(self.restore_from)
        if self.tiers == ("exact",):
            raise BadInputError(
                "What was trained before is no data of the exact tier. Expected the "
                f"tier bounded or free with {spell('restore_from')}."
            )

    def _check_in_flight(self) -> None:
        check_in_flight(self.in_flight, *map(ClusterSpec.parse, self.clusters))
        if self.in_flight == 1:
            return
        if "free" in self.tiers:
            raise BadInputError(
                "Steps in flight have no tier 'free': what they leave behind is "
                "compared each time that all have ended. Expected exact or bounded."
            )
        if self.restore_from is not None:
            raise BadInputError(
                f"Steps in flight start afresh. Expected {spell('restore_from')} with "
                "one step at a time. "
                f"Received: {spell_given('in_flight', self.in_flight)}."
            )

    def _check_shares(self) -> None:
        for cluster in self.clusters:
            replicas = ClusterSpec.parse(cluster).replicas
            check_split(self.split, self.examples, replicas, f"Cluster '{cluster}'")

    def _check_counts(self) -> None:
        check_memory(self.memory_gib)
        if self.jobs < 1:
            raise BadInputError(
                f"{spell('jobs')} must be 1 or more; 1 is one scenario after the "
                f"other. Received: {self.jobs}."
            )
        for name in ("require_gpus", "examples"):
            if getattr(self, name) < 0:
                raise BadInputError(
                    f"{spell(name)} must not be negative. "
                    f"Received: {getattr(self, name)}."
                )

    def _check_engine(self) -> None:
        if self.engine not in ENGINES:
            raise make_unknown_name_error("Engine", self.engine, ENGINES)
        if self.start is not None and self.start not in START_METHODS:
            raise make_unknown_name_error("Start method", self.start, START_METHODS)


def describe_options(options: CheckOptions) -> dict[str, Any]:
    """What was asked for, as JSON has it: the clusters, and all but defaults."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    usual = CheckOptions()
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if name == "clusters" or value != getattr(usual, name)
    }


def list_tiers(options: CheckOptions) -> tuple[Tier, ...]:
    """The tiers to try, before it is known which of them the subject can have."""
    wanted: tuple[Tier, ...] = options.tiers or _DEFAULT_TIERS  # type: ignore[assignment]  # validated by the options
    # What was trained before is not dyadic any more.
    left_out = ("exact",) if options.restore_from else ()
    return tuple(tier for tier in wanted if tier not in left_out)


class Progress(Protocol):
    """Who wants to know how far a check is. Called by one thread at a time."""

    def plan(self, scenarios: Sequence[Scenario]) -> None:
        """Called once, before the first of them starts."""
        ...

    def start(self, scenario_id: str) -> None:
        """Called when a scenario's cluster starts."""
        ...

    def finish(self, run: Run) -> None:
        """Called when a run was judged; one scenario has a run for each tier."""
        ...

    def note(self, text: str) -> None:
        """Called with what the user should know meanwhile: that nodes are awaited."""
        ...
