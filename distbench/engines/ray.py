"""The engine `ray`: one placement group for a check, and a Ray task for each agent.

The cluster is the one that RAY_ADDRESS names, or the one that this machine belongs to.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from distbench.agent.door import TICKET, Door, Ticket
from distbench.agent.engine import (
    CPUS_PER_TASK,
    QUEUE_S,
    AgentEngine,
    Starting,
    Waiting,
)
from distbench.errors import BadInputError, ClusterError
from distbench.launch.engine import Demand, Room
from distbench.launch.surroundings import add_root
from distbench.machine import Machine

_LOOK_S = 1.0
_END_S = 10.0


@contextmanager
def open_engine(
    demand: Demand, *, allow_public: bool, log: Callable[[str], None]
) -> Iterator[AgentEngine]:
    """The engine, on nodes that a placement group holds."""
    # No word of any run leaves the user's machines.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise BadInputError(
            "Engine 'ray' needs Ray, which is not installed. "
            "Install it with: pip install 'distbench[ray]'."
        ) from None
    with ExitStack() as stack:
        if not ray.is_initialized():
            stack.callback(ray.shutdown)
            _join_cluster()
        demand = demand.limit(count_places(ray.nodes(), demand.gpus_per_task))
        group = _reserve(demand, log)
        stack.callback(ray.util.remove_placement_group, group)
        yield stack.enter_context(
            RayEngine(group, demand, allow_public=allow_public, log=log)
        )


@dataclass(slots=True, kw_only=True)
class Bundle:
    """What the placement group holds for one task.

    Attributes:
        index: Its number.
        agents: How many agents are in it.
        is_free: Whether no agent has its GPUs.
        losses: How many agents in it have ended unasked.
    """

    index: int
    agents: int = 0
    is_free: bool = True
    losses: int = 0


class RayEngine(AgentEngine):
    """Starts agents as Ray tasks in the bundles of a placement group.

    Args:
        group: The placement group.
        demand: What it holds.
        allow_public: Whether nodes may have addresses that the world can reach.
        log: Told what the user should know.
    """

    def __init__(
        self,
        group: Any,
        demand: Demand,
        *,
        allow_public: bool,
        log: Callable[[str], None],
    ) -> None:
        import ray

        host = ray.util.get_node_ip_address()
        super().__init__(host, allow_public=allow_public, log=log)
        self._group = group
        self._demand = demand
        self._bundles = [Bundle(index=index) for index in range(demand.tasks)]

    def inspect(self) -> Machine:
        """What the placement group holds; memory is what the whole cluster has."""
        import ray

        return Machine(
            cores=CPUS_PER_TASK * self._demand.tasks,
            memory_bytes=int(ray.cluster_resources().get("memory", 0)),
            gpus=self._demand.gpus_per_task * self._demand.tasks,
        )

    def find_room(self) -> Room:
        """One task for each bundle."""
        tasks = self._demand.tasks
        return Room(tasks=tasks, gpu_tasks=tasks if self._demand.gpus_per_task else 0)

    def start_agent(self, door: Door, gpus: int) -> tuple[Ticket, Starting]:
        """Start a Ray task in the bundle that has the fewest agents, and its GPUs."""
        fitting = [b for b in self._bundles if b.is_free or not gpus]
        if not fitting or gpus > self._demand.gpus_per_task:
            raise ClusterError(
                f"The placement group has no {gpus} free GPUs on one node. "
                "Use fewer GPUs per worker."
            )
        bundle = min(fitting, key=lambda bundle: (bundle.losses, bundle.agents))
        ticket = door.issue()
        return ticket, RayAgent(self._group, bundle, ticket, gpus)


class RayAgent:
    """An agent as a Ray task, which ends with it."""

    def __init__(self, group: Any, bundle: Bundle, ticket: Ticket, gpus: int) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._bundle = bundle
        self._gpus = gpus
        # The bundle's processors are for what the agent starts.
        start = ray.remote(num_cpus=0, num_gpus=gpus, max_retries=0)(run_on_node)
        strategy = PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=bundle.index
        )
        self._done = start.options(scheduling_strategy=strategy).remote(
            asdict(ticket), {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}
        )
        bundle.agents += 1
        bundle.is_free = bundle.is_free and not gpus

    def find_end(self) -> str | None:
        """How the Ray task ended, with what the agent printed; None while it runs."""
        import ray

        ready, _ = ray.wait([self._done], timeout=0)
        if not ready:
            return None
        try:
            return str(ray.get(self._done))
        except ray.exceptions.RayError as error:
            return str(error)

    def close(self) -> None:
        """End the Ray task; an agent whose connection was closed ends by itself."""
        import ray

        ready, _ = ray.wait([self._done], timeout=_END_S)
        if not ready:
            ray.cancel(self._done, force=True)

    def release(self, *, is_lost: bool) -> None:
        """Its bundle has room for another one."""
        self._bundle.agents -= 1
        self._bundle.losses += is_lost
        self._bundle.is_free = self._bundle.is_free or bool(self._gpus)


def run_on_node(ticket: Mapping[str, Any], own: Mapping[str, str | None]) -> str:
    """Run an agent until it ends; on the node, in a process of Ray's.

    Args:
        ticket: The fields of its ticket.
        own: Variables in the place of those that Ray sets; None removes one.

    Returns:
        How it ended, and what it printed.
    """
    import ray

    here = replace(Ticket(**ticket), address=ray.util.get_node_ip_address())
    environment = {**os.environ, **own, TICKET: json.dumps(asdict(here))}
    with tempfile.TemporaryFile() as output:
        code = subprocess.call(
            [sys.executable, "-m", "distbench.agent"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={k: v for k, v in environment.items() if v is not None},
            cwd="/",
        )
        output.seek(0)
        said = output.read().decode(errors="replace").strip()
    return f"the agent on {socket.gethostname()} ended with exit code {code}: {said}"


def _join_cluster() -> None:
    import ray

    path = add_root(os.environ.get("PYTHONPATH", ""))
    try:
        ray.init(
            address=os.environ.get("RAY_ADDRESS", "auto"),
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        # No cluster, one of another version of Ray or Python, or no address.
        raise ClusterError(
            "There is no Ray cluster to join. Start one with 'ray start --head', or "
            f"name one in RAY_ADDRESS. Received: {error}"
        ) from error


def count_places(nodes: Iterable[Mapping[str, Any]], gpus_per_task: int) -> int:
    """For how many tasks there would be room, if nobody else used the cluster."""
    places = 0
    for node in nodes:
        held = node["Resources"]
        fitting = [held.get("CPU", 0) // CPUS_PER_TASK]
        if gpus_per_task:
            fitting.append(held.get("GPU", 0) // gpus_per_task)
        places += int(min(fitting)) if node["Alive"] else 0
    return places


def _reserve(demand: Demand, log: Callable[[str], None]) -> Any:
    import ray

    bundle = {"CPU": CPUS_PER_TASK}
    if demand.gpus_per_task:
        bundle["GPU"] = demand.gpus_per_task
    group = ray.util.placement_group([bundle] * demand.tasks, strategy="SPREAD")
    what = f"{demand.tasks} nodes or parts of nodes with {json.dumps(bundle)} each"
    late = f"Ray gave no {what} within {QUEUE_S / 3600:g} hours."
    waiting = Waiting(log, QUEUE_S, _LOOK_S)
    try:
        while not group.wait(_LOOK_S):
            waiting.look(what, late)
    except BaseException:
        ray.util.remove_placement_group(group)
        raise
    return group
