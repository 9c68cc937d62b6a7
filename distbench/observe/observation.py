"""What became of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distbench.evidence import Evidence, Tier
from distbench.flight import Flight
from distbench.launch.failure import TaskFailedError
from distbench.target import TargetRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What became of a scenario.

    Attributes:
        evidence: By tier, where the run got to its end with one step at a time.
        flight: The same of steps in flight.
        failure: The task that failed on the cluster, if one did.
        seconds: Wall time.
        environment: Versions, devices and settings of the tasks.
        control: The stock optimizer of the subject's family.
        folder: Where the traces are.
        tiers: Those that the subject can have; empty where that is not known.
    """

    evidence: Mapping[Tier, Evidence] = field(default_factory=dict)
    flight: Flight | None = None
    failure: TaskFailedError | None = None
    seconds: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    control: TargetRef | None = None
    folder: Path | None = None
    tiers: tuple[Tier, ...] = ()
