"""What became of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distbench.evidence import Evidence, Tier
from distbench.flight import Flight
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group
from distbench.target import TargetRef
from distbench.trace.shelf import Shelf


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What became of a scenario.

    Attributes:
        evidence: By tier, where the run got to its end with one step at a time.
        flight: What there is in place of evidence where steps were in flight.
        failure: The task that failed on the cluster, if one did.
        seconds: Wall time.
        disk_bytes: What its traces take on disk.
        environment: Versions, devices and settings of the tasks.
        control: The stock optimizer of the subject's family.
        folder: Where the traces are.
        reference: Where those of its single-device run are.
        logs: The last lines of each task's output, by its name.
        tiers: Those that the subject can have; empty where that is not known.
        injury: What was done to a task on purpose, in words; empty for nothing.
    """

    evidence: Mapping[Tier, Evidence] = field(default_factory=dict)
    flight: Flight | None = None
    failure: TaskFailedError | None = None
    seconds: float = 0.0
    disk_bytes: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    control: TargetRef | None = None
    folder: Path | None = None
    reference: Path | None = None
    logs: Mapping[str, str] = field(default_factory=dict)
    tiers: tuple[Tier, ...] = ()
    injury: str = ""

    def clear_arrays(self) -> None:
        """Remove them: the scenarios of a check may take more disk than there is."""
        if self.folder is not None:
            Shelf(self.folder).clear()


def measure_disk(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def name_logs(one: Group, cluster: Group) -> dict[str, str]:
    """What the tasks of a cluster, and of the one device beside it, printed last."""
    logs = {str(task): text for task, text in cluster.read_logs().items()}
    return logs | {f"{t} of one device": text for t, text in one.read_logs().items()}
