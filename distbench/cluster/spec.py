"""A parsed cluster spec, and the tasks that follow from it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from distbench.cluster.kind import ClusterKind
from distbench.cluster.kinds import KINDS
from distbench.cluster.nearest import explain_refusal
from distbench.cluster.numbers import ALL, MOST
from distbench.errors import BadInputError

Device = Literal["cpu", "gpu"]
Role = Literal["worker", "chief", "ps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One process of a cluster."""

    role: Role
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A parsed cluster spec.

    Attributes:
        kind: Name of its kind, one of `KINDS`; see `traits`.
        workers: Number of worker tasks.
        replicas_per_worker: Devices that each worker trains on.
        parameter_servers: Number of parameter server tasks; 0 where it has none.
        device: `cpu`, `gpu`, or None where the spec leaves the choice to the bench.
    """

    kind: str
    workers: int = 1
    replicas_per_worker: int = 1
    parameter_servers: int = 0
    device: Device | None = None

    def __post_init__(self) -> None:
        has_one = self.device == "cpu" and not self.traits.divides_cpu
        if has_one and self.replicas_per_worker > 1:
            meant = [dataclasses.replace(self, device="gpu")]
            count = self.workers * self.replicas_per_worker  # of 'all' it is 'all'
            if count <= MOST:
                one = dataclasses.replace(self, workers=count, replicas_per_worker=1)
                meant.insert(0, one)
            raise BadInputError(
                f"Cluster spec '{self}': {self.traits.strategy_name} gives a CPU "
                f"worker one device, so several replicas per worker need GPUs. "
                f"Use {' or '.join(map(repr, map(str, meant)))}."
            )

    @classmethod
    def parse(cls, text: str) -> ClusterSpec:
        """Parse a spec such as `mwms:2` or `mirrored:all@gpu`.

        Raises:
            BadInputError: The text is not a spec; the message gives the grammar and
                the nearest valid spec.
        """
        body, at, device = text.strip().partition("@")
        if not at or device in ("cpu", "gpu"):
            for name, kind in KINDS.items():
                if numbers := kind.read(body):
                    return cls(
                        kind=name,
                        workers=numbers["W"],
                        replicas_per_worker=numbers["R"],
                        parameter_servers=numbers["P"],
                        device=device if at else None,  # type: ignore[arg-type]
                    )
        raise explain_refusal(text, body, device)

    def __str__(self) -> str:
        body = self.traits.spell(
            {
                "W": self.workers,
                "R": self.replicas_per_worker,
                "P": self.parameter_servers,
            }
        )
        return body + (f"@{self.device}" if self.device else "")

    @property
    def traits(self) -> ClusterKind:
        """What is true of all clusters of its kind."""
        return KINDS[self.kind]

    def resolve(self, *, gpus: int, cpus: int) -> ClusterSpec:
        """Replace `all` and an open device by what this machine has.

        Args:
            gpus: Number of GPUs that the bench may use.
            cpus: Number of CPU cores; `all` without GPUs takes as many.

        The result may need more GPUs than there are (`gpus_needed`): a run to skip.
        """
        device, kind = self.device, self.traits
        if device is None:
            wanted = [self.workers, self.replicas_per_worker]
            enough = gpus >= (wanted[0] or 1) * (wanted[1] or 1) and kind.takes_gpus
            # Several replicas per worker exist on GPUs alone, so a machine without
            # them lacks something: that is a skip, not bad usage.
            only_gpu = not kind.divides_cpu and self.replicas_per_worker > 1
            device = "gpu" if only_gpu or (gpus and enough) else "cpu"
        have = gpus if device == "gpu" else cpus
        workers = self.workers
        replicas = self.replicas_per_worker
        if replicas == ALL and device == "gpu":
            replicas = max(1, have // (workers or 1))
        elif replicas == ALL:
            replicas = have if kind.divides_cpu else 1
        if workers == ALL:
            workers = max(1, have // replicas)
        return dataclasses.replace(
            self,
            workers=workers,
            replicas_per_worker=replicas,
            parameter_servers=(self.parameter_servers or 1) if kind.has_servers else 0,
            device=device,
        )

    @property
    def replicas(self) -> int:
        """Number of replicas, `num_replicas_in_sync`.

        A step that is scheduled runs on one worker by itself, so one replica.
        """
        return 1 if self.traits.scheduled else self.workers * self.replicas_per_worker

    @property
    def variable_device(self) -> Device:
        """The kind of device that a resolved spec has its variables on."""
        is_beside = self.device == "gpu" and not self.traits.variables_on_cpu
        return "gpu" if is_beside else "cpu"

    @property
    def computes_elsewhere(self) -> bool:
        """Whether a resolved spec has GPUs, and its variables beside them on CPUs."""
        return self.device == "gpu" and self.variable_device == "cpu"

    @property
    def worker_devices(self) -> list[str]:
        """Devices that each worker trains on, as TensorFlow calls them in its task."""
        device = self.device or "cpu"
        return [f"{device}:{number}" for number in range(self.replicas_per_worker)]

    @property
    def gpus_per_task(self) -> int:
        """Number of GPUs that each worker of a resolved spec needs."""
        return self.replicas_per_worker if self.device == "gpu" else 0

    @property
    def gpus_needed(self) -> int:
        """Number of GPUs that a resolved spec needs."""
        return self.workers * self.gpus_per_task

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task of a resolved spec; the first one decides what a step is."""
        chief = (Task(role="chief", index=0),) if self.traits.scheduled else ()
        workers = tuple(Task(role="worker", index=i) for i in range(self.workers))
        servers = tuple(Task(role="ps", index=i) for i in range(self.parameter_servers))
        return (*chief, *workers, *servers)


ONE = ClusterSpec(kind=next(name for name, kind in KINDS.items() if kind.single))
"""The one device that clusters are held against."""
