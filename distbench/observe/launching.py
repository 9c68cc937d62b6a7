"""How the tasks of a check are started."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec, Task
from distbench.launch.group import Group
from distbench.launch.injury import Injury
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import Job, start_group
from distbench.launch.surroundings import Start
from distbench.scenario import Scenario, scenario_to_json
from distbench.target import TargetRef, target_to_json

ENTRY = "distbench.worker.main:run_task"
PRELOADS = ("tensorflow", "tf_keras", "distbench.worker.main")
"""Modules that the fork server imports for all tasks: none of them runs an op."""
ONE = ClusterSpec(kind="one", device="cpu")
_GIB = 1 << 30
OPEN_S = 60.0
"""Deadline of what only opens a task: importing, starting devices and servers."""


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
        injury: What is done to a task of a cluster with steps in flight.
    """

    directory: RunDirectory
    keras: str | None = None
    jit: bool | None = None
    start: Start | None = None
    log: Callable[[str], None] = lambda _: None
    memory_gib: float | None = None
    rerun: bool = False
    injury: Injury | None = None

    def start_cluster(self, spec: ClusterSpec, first: Job) -> Group:
        """Start the tasks of a cluster and run their first job."""
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_FAIL_FAST": "use_caller"}
        if self.keras is not None:
            environment["TF_USE_LEGACY_KERAS"] = "1" if self.keras == "legacy" else "0"
        if self.jit:
            # XLA leaves CPUs alone unless it is told otherwise before it starts.
            flags = os.environ.get("TF_XLA_FLAGS", "")
            environment["TF_XLA_FLAGS"] = f"{flags} --tf_xla_cpu_global_jit".strip()
        if spec.device == "cpu":
            # Keeps TensorFlow from looking for a driver that nobody will use.
            environment["CUDA_VISIBLE_DEVICES"] = "-1"
        return start_group(
            spec,
            run_directory=self.directory,
            entry=ENTRY,
            preload=PRELOADS,
            environment=environment,
            environment_by_task=_assign_gpus(spec),
            start=self.start,
            first=first,
            memory_bytes=None
            if self.memory_gib is None
            else int(self.memory_gib * _GIB),
            log=self.log,
        )


def start_one(launch: Launch, seed: int, jit: bool | None) -> Group:
    """A single-device task, for what is asked of one device."""
    return launch.start_cluster(ONE, make_opening(seed, jit))


def make_opening(
    seed: int,
    jit: bool | None,
    partitioner: str = "",
) -> Job:
    """The first job of every task: it starts TensorFlow."""
    payload = {
        "seed": seed,
        "jit": jit,
        "partitioner": partitioner,
    }
    return Job(name="open", payload=payload, timeout_s=OPEN_S)


def make_payload(
    target: TargetRef, scenario: Scenario, spec: ClusterSpec, folder: Path
) -> dict[str, Any]:
    """What every job of a scenario is told: what to run, where, and who trains."""
    return {
        "target": target_to_json(target),
        "scenario": scenario_to_json(scenario),
        "folder": str(folder),
        "tasks": [str(task) for task in list_trainers(spec)],
    }


def list_trainers(spec: ClusterSpec) -> tuple[Task, ...]:
    """The tasks that run the program: the chief under `ps`, else every worker."""
    return spec.tasks[:1] if spec.kind == "ps" else spec.tasks


def _assign_gpus(spec: ClusterSpec) -> dict[Task, dict[str, str]]:
    """Give each worker of a multi-worker cluster its own GPUs."""
    if spec.kind != "mwms" or spec.device != "gpu":
        return {}
    each = spec.replicas_per_worker
    return {
        task: {
            "CUDA_VISIBLE_DEVICES": ",".join(
                str(task.index * each + i) for i in range(each)
            )
        }
        for task in spec.tasks
    }
