"""A mistake in what decides when a copy follows what trains."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.replicas import count_replicas
from distbench.unusual.target import FollowsEverySecondStep


@fault("update-repeated", "variable", ("taken",), like="larq/larq#629")
class StepsOfAllReplicasCounted(FollowsEverySecondStep):
    """Steps are counted once for each replica, and a copy follows more often."""

    def count_steps(self):
        return count_replicas()
