"""How the tasks of a check are started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from distbench.cluster import ONE as ONE_DEVICE
from distbench.cluster import ClusterSpec
from distbench.launch.deadline import Deadline
from distbench.launch.engine import Engine, Request
from distbench.launch.group import Group
from distbench.launch.halt import Halt
from distbench.launch.injury import Injury
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.spares import Spares
from distbench.launch.start import Job, give_first, start_group
from distbench.launch.surroundings import Start
from distbench.preloading import PRELOADS, make_environment
from distbench.scenario import Scenario

ENTRY = "distbench.worker.main:run_task"
ONE = replace(ONE_DEVICE, device="cpu")
_GIB = 1 << 30
OPEN_S = 60.0
"""What a task has at least to open, where no scenario has a deadline: for importing,
starting devices and servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the tasks of a check are started.

    Attributes:
        directory: Folder of the check; every scenario gets a subfolder.
        keras: `legacy` or `3`; None keeps the user's `TF_USE_LEGACY_KERAS`.
        jit: Whether XLA compiles; None leaves it to TensorFlow.
        start: `fork` or `spawn`; None takes what is safe here.
        log: Told what the user should know.
        memory_gib: How much memory each task may take; None lets them take together
            what the machine can spare.
        rerun: Whether one device runs the shards in other graphs even where all
            replicas repeat them bit by bit.
        injury: What is done to a task, beyond the faults of a scenario.
        engine: Who finds places for tasks.
        sharers: How many clusters there are at one time at most, which share the
            memory that the machine can spare.
        patience: As many times as long as it says a scenario may take where its tasks
            compute; see `Deadline`.
        open_s: Deadline of what only opens a task, where no scenario has one.
        halt: Ends whoever waits for a cluster.
        spares: Has tasks of this machine that were started before; None starts them
            when wanted.
    """

    directory: RunDirectory
    keras: str | None = None
    jit: bool | None = None
    start: Start | None = None
    log: Callable[[str], None] = lambda _: None
    memory_gib: float | None = None
    rerun: bool = False
    injury: Injury | None = None
    engine: Engine = field(default_factory=LocalEngine)
    sharers: int = 1
    patience: float = 1.0
    open_s: float = OPEN_S
    halt: Halt = field(default_factory=Halt)
    spares: Spares | None = None

    def give_time(self, timeout_s: float) -> Deadline:
        """A deadline for all jobs of a scenario together; it runs from now on."""
        return Deadline(timeout_s, patience=self.patience)

    def find_one(self, spec: ClusterSpec) -> ClusterSpec:
        """The one device that a cluster is held against.

        It is of the kind that the variables are on: another one's kernels round an
        update otherwise.
        """
        shares = self.engine.shares_gpus
        return replace(ONE, device=spec.variable_device if shares else "cpu")

    def start_cluster(
        self, spec: ClusterSpec, first: Job, ahead: Job | None = None
    ) -> Group:
        """Start the tasks of a cluster and run their first job.

        Args:
            spec: The resolved cluster spec.
            first: The job.
            ahead: What tasks do before it if they are started before they are wanted;
                None has them do the job itself.
        """
        environment = make_environment(
            keras=self.keras, jit=self.jit, device=spec.device
        )
        request = Request(
            spec=spec,
            directory=self.directory,
            entry=ENTRY,
            preload=PRELOADS,
            environment=environment,
            start=self.start,
            memory_bytes=None
            if self.memory_gib is None
            else int(self.memory_gib * _GIB),
            sharers=self.sharers,
        )
        is_here = isinstance(self.engine, LocalEngine)
        # Tasks that wait would keep GPUs from others.
        if self.spares is not None and is_here and spec.device == "cpu":
            opening = first if ahead is None else ahead
            waiting = replace(
                opening,
                payload={**opening.payload, "ahead": True},
                deadline=self.open_s,
            )
            spare = self.spares.take(
                (
                    str(spec),
                    opening.name,
                    repr(opening.payload),
                    frozenset(environment.items()),
                    *(self.start, self.memory_gib, self.sharers),
                ),
                len(spec.tasks),
                lambda directory: start_group(
                    replace(request, directory=directory), self.engine, waiting
                ),
                self.halt,
            )
            if spare is not None:
                if ahead is not None:
                    give_first(spare, first)
                return spare
        asked = replace(request, log=self.log, halt=self.halt)
        return start_group(asked, self.engine, first)


def start_one(launch: Launch, seed: int, jit: bool | None) -> Group:
    """A single-device task, for what is asked of one device."""
    payload = _tell_runtime(seed, jit)
    opening = Job(name="open", payload=payload, deadline=launch.open_s)
    return launch.start_cluster(ONE, opening)


def make_opening(scenario: Scenario, deadline: Deadline) -> Job:
    """The first job of every task of a scenario: it starts TensorFlow.

    Args:
        scenario: What is to be run.
        deadline: For all jobs together, so for this one as well: 1000 replicas take
            longer to open than most programs to train.
    """
    return Job(
        name="open",
        payload=_tell_runtime(
            scenario.seed,
            scenario.jit,
            scenario.partitioner,
            op_determinism=scenario.op_determinism,
        ),
        deadline=deadline,
    )


def _tell_runtime(
    seed: int,
    jit: bool | None,
    partitioner: str = "",
    *,
    op_determinism: bool = False,
) -> dict[str, object]:
    return {
        "seed": seed,
        "jit": jit,
        "partitioner": partitioner,
        "op_determinism": op_determinism,
    }
