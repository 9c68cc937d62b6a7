"""The cluster of a scenario, as who asks its program to train sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distbench.cluster import Task
from distbench.launch.deadline import Deadline
from distbench.launch.group import Group
from distbench.observe.errand import Errand

Answers = Mapping[Task, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Trainers:
    """The tasks of a cluster that run the program, with one deadline for all jobs.

    Attributes:
        cluster: All of its tasks.
        tasks: Those that train.
        deadline: That of the scenario.
    """

    cluster: Group
    tasks: tuple[Task, ...]
    deadline: Deadline

    def call(self, job: str, payload: Mapping[str, Any]) -> Answers:
        """Have them run a job, and wait for all of them; see `Group.call`."""
        return self.submit(job, payload)()

    def submit(self, job: str, payload: Mapping[str, Any]) -> Callable[[], Answers]:
        """Have them run a job, and go on; see `Group.submit`."""
        return self.cluster.submit(
            job,
            payload,
            deadline=self.deadline,
            tasks=self.tasks,
        )


@contextmanager
def start_trainers(errand: Errand) -> Iterator[Trainers]:
    """Start the cluster of a scenario; its tasks are ended behind it."""
    with errand.launch.start_cluster(errand.spec, errand.opening) as cluster:
        yield Trainers(cluster, errand.trainers, errand.deadline)
