"""A cluster that trains before, and saves what another one restores."""

from __future__ import annotations

from distbench.cluster import ClusterSpec
from distbench.observe.errand import Errand
from distbench.observe.trainers import start_trainers

SAVED = "saved"
"""The folder, in that of the scenario, with the checkpoint and what it has to hold."""


def train_before(errand: Errand) -> dict[str, str]:
    """Train on another cluster and save; returns what the payload has to say of it."""
    place = errand.folder / SAVED
    place.mkdir(mode=0o700)
    spec = ClusterSpec.parse(errand.scenario.restore_from)
    before = errand.change(errand.scenario.trained_before, spec, place)
    payload = before.make_payload()
    with start_trainers(before) as trainers:
        for job in before.list_jobs("save"):
            trainers.call(job, payload)
    return {"restored": str(place), "saved_by": str(trainers.tasks[0])}
