"""What is done on purpose to the tasks of a cluster, and to what replicas train on."""

from __future__ import annotations

import signal

from distbench.fault import Fault
from distbench.launch.injury import Injury
from distbench.observe.launching import Launch
from distbench.scenario import Scenario


def list_injuries(scenario: Scenario, launch: Launch) -> tuple[Injury, ...]:
    """What is to be done to tasks on purpose."""
    own = () if launch.injury is None else (launch.injury,)
    faults = [fault for fault in scenario.injected if fault.task is not None]
    return (*own, *map(make_injury, faults))


def make_injury(fault: Fault, *, goes_on: bool = False) -> Injury:
    """What a fault of a task is to the launcher."""
    is_killed = fault.kind in ("kill", "restart")
    return Injury(
        number=signal.SIGKILL if is_killed else signal.SIGSTOP,
        step=fault.step,
        task=fault.task,
        restarts=fault.kind == "restart",
        until_step=fault.until,
        for_s=fault.amount,
        goes_on=goes_on,
        name=f"fault {fault}",
    )


def tell_injuries(scenario: Scenario, done: str) -> str:
    """What was done on purpose, in words: to tasks, and to what replicas train on.

    Args:
        scenario: What was run.
        done: What was done to tasks, as their group says.
    """
    told = [done] if done else []
    told += [_WORDS[f.kind].format(f) for f in scenario.injected if f.task is None]
    return ", ".join(told)


_WORDS = {
    "drop": "replica {0.rank} got no examples in step {0.step}",
    "nan": "replica {0.rank} got NaN in its gradients in step {0.step}",
    "scale": "replica {0.rank} got its gradients times {0.amount:g} in step {0.step}",
    "flip": "replica {0.rank} got bit {0.amount:g} of its first gradient flipped in "
    "step {0.step}",
}
