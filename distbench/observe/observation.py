"""What became of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distbench.evidence import Evidence, Tier
from distbench.flight import Flight
from distbench.late import Late
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group
from distbench.observe.errand import Errand
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
        errand: What was run, and where its traces are; None if it ended without any.
        logs: The last lines of each task's output, by its name.
        tiers: Those that the subject can have; empty where that is not known.
        injury: What was done to a task on purpose, in words; empty for nothing.
        late: What none of its steps shows, where that was looked for.
    """

    evidence: Mapping[Tier, Evidence] = field(default_factory=dict)
    flight: Flight | None = None
    failure: TaskFailedError | None = None
    seconds: float = 0.0
    disk_bytes: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    control: TargetRef | None = None
    errand: Errand | None = None
    logs: Mapping[str, str] = field(default_factory=dict)
    tiers: tuple[Tier, ...] = ()
    injury: str = ""
    late: Late = field(default_factory=Late)

    @property
    def folder(self) -> Path | None:
        """Where the traces are."""
        return None if self.errand is None else self.errand.folder

    @property
    def reference(self) -> Path | None:
        """Where those of its single-device run are."""
        return None if self.errand is None else self.errand.reference

    def clear_arrays(self) -> None:
        """Remove them: the scenarios of a check may take more disk than there is."""
        if self.folder is not None:
            Shelf(self.folder).clear()


def make_observation(errand: Errand, **found: Any) -> Observation:
    """What became of a scenario that ends here; see `Observation`."""
    return Observation(errand=errand, seconds=errand.deadline.spent_s, **found)


def observe_failure(
    error: TaskFailedError, errand: Errand, **found: Any
) -> Observation:
    """What became of a scenario in which a task failed; see `Observation`."""
    logs = {str(task): text for task, text in error.log_tails.items()}
    return make_observation(errand, failure=error, logs=logs, **found)


def measure_disk(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def name_logs(one: Group, cluster: Group) -> dict[str, str]:
    """What the tasks of a cluster, and of the one device beside it, printed last."""
    logs = {str(task): text for task, text in cluster.read_logs().items()}
    return logs | {f"{t} of one device": text for t, text in one.read_logs().items()}
