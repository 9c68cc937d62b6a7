"""What is told of a run that ended before anything was compared."""

from __future__ import annotations

from typing import cast

from distbench.checking.controls import Controls
from distbench.checking.failing import Failing
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec, Task
from distbench.launch.failure import TaskFailedError
from distbench.observe import Observation
from distbench.scenario import Scenario
from distbench.verdict import Status


def test_a_broken_cluster_is_told_for_the_tiers_that_the_data_can_have() -> None:
    """As a failure of the subject is: 10 examples prove nothing to the exact tier."""
    scenario = Scenario(target="m:f", workload="linear", cluster="mirrored:2")
    item = Planned(
        scenario=scenario, spec=ClusterSpec.parse("mirrored:2"), optional=False
    )
    failure = TaskFailedError(
        "worker-0 died", task=Task(role="worker", index=0), kind="died"
    )
    controls = cast(Controls, None)  # Nobody asks whose fault it is.
    failing = Failing(("exact", "bounded"), controls)
    seen = Observation(failure=failure, tiers=("bounded",))
    runs = list(failing.judge(item, seen, failure))
    assert [(run.tier, run.status) for run in runs] == [("bounded", Status.ERROR)]
