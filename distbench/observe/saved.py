"""A cluster that trains before, and saves what another one restores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.launch.deadline import Deadline
from distbench.observe.launching import Launch, make_payload
from distbench.observe.trainers import start_trainers
from distbench.scenario import Scenario
from distbench.scenario.choices import PIPELINE
from distbench.target import TargetRef

SAVED = "saved"
"""The folder, in that of the scenario, with the checkpoint and what it has to hold."""


def train_before(
    target: TargetRef,
    scenario: Scenario,
    folder: Path,
    launch: Launch,
    deadline: Deadline,
) -> dict[str, Any]:
    """Train on another cluster and save; returns what the payload has to say of it."""
    spec = ClusterSpec.parse(scenario.restore_from)
    before = scenario.trained_before
    place = folder / SAVED
    place.mkdir(mode=0o700)
    payload = make_payload(target, before, spec, place)
    jobs = (
        ("read", "prepare", "save")
        if scenario.workload == PIPELINE
        else ("prepare", "save")
    )
    with start_trainers(launch, before, spec, deadline) as trainers:
        for job in jobs:
            trainers.call(job, payload)
    return {"restored": str(place), "saved_by": str(trainers.tasks[0])}
