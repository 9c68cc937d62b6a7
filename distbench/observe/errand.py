"""A scenario as it is run once: of which subject, by which tasks, and until when."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec, Task
from distbench.launch.deadline import Deadline
from distbench.launch.start import Job
from distbench.observe.launching import Launch, make_opening
from distbench.scenario import Scenario, scenario_to_json
from distbench.scenario.choices import PIPELINE
from distbench.target import TargetRef, target_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A scenario that is run once.

    Attributes:
        target: The subject.
        scenario: What to run.
        spec: Its resolved cluster spec.
        launch: How tasks are started.
        deadline: For all of its jobs together.
        folder: Where tasks leave what they recorded.
        reference: Where the single-device run does.
    """

    target: TargetRef
    scenario: Scenario
    spec: ClusterSpec
    launch: Launch
    deadline: Deadline
    folder: Path
    reference: Path

    @classmethod
    def begin(
        cls,
        target: TargetRef,
        scenario: Scenario,
        spec: ClusterSpec,
        launch: Launch,
        name: str = "",
    ) -> Errand:
        """Give it a folder, and all the time that its scenario may take from now on.

        Args:
            target: The subject.
            scenario: What to run.
            spec: Its resolved cluster spec.
            launch: How tasks are started.
            name: What its folder is called; by default as the scenario is.
        """
        unique = f"{name or scenario.id}-{time.monotonic_ns()}"
        folder = launch.directory.make_folder(unique)
        return cls(
            target=target,
            scenario=scenario,
            spec=spec,
            launch=launch,
            deadline=launch.give_time(scenario.timeout_s),
            folder=folder,
            reference=folder,
        )

    def change(self, scenario: Scenario, spec: ClusterSpec, folder: Path) -> Errand:
        """Another scenario of its subject in its time; see `Errand`."""
        return replace(
            self, scenario=scenario, spec=spec, folder=folder, reference=folder
        )

    def begin_again(self) -> Errand:
        """The same in the same folder, with as much time from now on."""
        deadline = self.launch.give_time(self.scenario.timeout_s)
        return replace(self, deadline=deadline)

    @property
    def opening(self) -> Job:
        """The first job of each of its tasks."""
        return make_opening(self.scenario, self.deadline)

    @property
    def one(self) -> ClusterSpec:
        """The one device that its cluster is held against."""
        return self.launch.find_one(self.spec)

    @property
    def trainers(self) -> tuple[Task, ...]:
        """The tasks that run the program: the chief that schedules, or every worker."""
        return self.spec.tasks[:1] if self.spec.traits.scheduled else self.spec.tasks

    def list_jobs(self, last: str) -> tuple[str, ...]:
        """The jobs of tasks that train, up to the one that takes the steps."""
        first = ("read",) if self.scenario.workload == PIPELINE else ()
        return (*first, "prepare", last)

    def make_payload(self, **more: Any) -> dict[str, Any]:
        """What every job is told: what to run, where, who trains, and what else."""
        faults = self.scenario.injected
        return {
            "target": target_to_json(self.target),
            "scenario": scenario_to_json(self.scenario),
            "folder": str(self.folder),
            "reference": str(self.reference),
            "cluster": str(self.spec),
            "replicas": self.spec.replicas,
            "tasks": [str(task) for task in self.trainers],
            # Whoever begins such a step waits until the fault is done.
            "waits": [fault.step for fault in faults if fault.task is not None],
            **more,
        }
