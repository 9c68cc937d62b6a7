"""The engine `slurm`: one allocation for a check, and a step in it for each agent.

Within a job (`sbatch`, `salloc`) that job's nodes are used, and else some are asked
for. What else a site wants, as a partition or an account, Slurm reads from the
environment (SALLOC_PARTITION, SALLOC_ACCOUNT, ...).
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

from distbench.agent.door import TICKET, Door, Ticket
from distbench.agent.engine import CPUS_PER_TASK, AgentEngine, Starting
from distbench.engines.slurm_job import (
    Allocation,
    ask_slurm,
    end_command,
    make_environment,
)
from distbench.errors import BadInputError, ClusterError, shorten
from distbench.launch.bootstrap import die_with_parent
from distbench.launch.engine import Demand, Room
from distbench.launch.tf_config import LOOPBACK
from distbench.machine import Machine

_COMMANDS = ("salloc", "srun", "scontrol")
_TOLD = 400


@contextmanager
def open_engine(
    demand: Demand, *, allow_public: bool, log: Callable[[str], None]
) -> Iterator[AgentEngine]:
    """The engine, on the nodes of this job or of one that is asked for."""
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise BadInputError(
            f"Engine 'slurm' needs the commands {', '.join(_COMMANDS)} on the PATH. "
            f"Missing: {', '.join(missing)}. Run it on a login node, or in a job."
        )
    with ExitStack() as stack:
        job = os.environ.get("SLURM_JOB_ID")
        if job is None:
            if demand.tasks > demand.least:
                demand = demand.limit(count_places(demand.gpus_per_task))
            job = stack.enter_context(Allocation(demand, log)).job
        yield stack.enter_context(
            SlurmEngine(
                job, list_nodes(job), demand, allow_public=allow_public, log=log
            )
        )


@dataclass(slots=True, kw_only=True)
class Node:
    """A node of the allocation.

    Attributes:
        name: Slurm's name of it.
        address: Its IP address; empty where this host's names do not tell it.
        cpus: How many of its processors belong to the allocation.
        memory_bytes: Its memory.
        gpus: How many GPUs of it belong to the allocation.
        agents: How many agents it has.
        losses: How many agents on it have ended unasked.
        free: Which of its GPUs no agent has, of those of the allocation.
    """

    name: str
    address: str
    cpus: int
    memory_bytes: int
    gpus: int
    agents: int = 0
    losses: int = 0
    free: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = list(range(self.gpus))


class SlurmEngine(AgentEngine):
    """Starts agents as steps of one job.

    Args:
        job: The job's number.
        nodes: Its nodes.
        demand: What its clusters need.
        allow_public: Whether nodes may have addresses that the world can reach.
        log: Told what the user should know.
    """

    def __init__(
        self,
        job: str,
        nodes: list[Node],
        demand: Demand,
        *,
        allow_public: bool,
        log: Callable[[str], None],
    ) -> None:
        host = choose_host(node.address for node in nodes)
        super().__init__(host, allow_public=allow_public, log=log)
        self._job = job
        self._nodes = nodes
        self._demand = demand
        # Linux ends a step with the thread that started it: this one stays.
        self._starter = ThreadPoolExecutor(1, "starts steps")

    def inspect(self) -> Machine:
        """What all nodes have together."""
        return Machine(
            cores=sum(node.cpus for node in self._nodes),
            memory_bytes=sum(node.memory_bytes for node in self._nodes),
            gpus=sum(node.gpus for node in self._nodes),
        )

    def find_room(self) -> Room:
        """As many tasks as there are processors, and shares of GPUs on one node."""
        share = max(1, self._demand.gpus_per_task)
        return Room(
            tasks=sum(node.cpus // CPUS_PER_TASK for node in self._nodes),
            gpu_tasks=sum(node.gpus // share for node in self._nodes),
        )

    def close(self) -> None:
        """End all agents, and all that they started."""
        super().close()
        self._starter.shutdown()

    def start_agent(self, door: Door, gpus: int) -> tuple[Ticket, Starting]:
        """Start a step on the node that has the fewest agents, and GPUs enough."""
        fitting = [node for node in self._nodes if len(node.free) >= gpus]
        if not fitting:
            raise ClusterError(
                f"No node of job {self._job} has {gpus} free GPUs. Ask for a larger "
                "allocation, or for fewer GPUs per worker."
            )
        node = min(fitting, key=lambda node: (node.losses, node.agents))
        own = tuple(node.free[:gpus])
        ticket = door.issue(address=node.address, node=node.name, gpus=own)
        return ticket, self._starter.submit(Step, self._job, node, ticket).result()


class Step:
    """An agent as a step of the job.

    Steps overlap, so the scheduler has not to fit them into the job once more, and each
    sees all of the job's GPUs on its node; which of these are its own the ticket says.
    """

    def __init__(self, job: str, node: Node, ticket: Ticket) -> None:
        self._node = node
        self._gpus = ticket.gpus or ()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        self._popen = subprocess.Popen(
            [
                "srun",
                f"--jobid={job}",
                "--overlap",
                "--nodes=1",
                "--ntasks=1",
                f"--nodelist={node.name}",
                f"--gres=gpu:{node.gpus}" if ticket.gpus else "--gres=none",
                "--cpu-bind=none",
                "--export=ALL",
                "--chdir=/",
                "--input=none",
                sys.executable,
                "-m",
                "distbench.agent",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=make_environment({TICKET: json.dumps(asdict(ticket))}),
            # Ctrl-C in the terminal reaches the bench alone, which then decides.
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
        )
        node.agents += 1
        for gpu in self._gpus:
            node.free.remove(gpu)

    def find_end(self) -> str | None:
        """How the step ended, with what it printed; None while it runs."""
        if self._popen.poll() is None:
            return None
        self._output.seek(0)
        said = self._output.read().decode(errors="replace").strip()
        code = self._popen.returncode
        return f"srun on node {self._node.name} ended with exit code {code}: {said}"

    def close(self) -> None:
        """End the step; an agent whose connection was closed ends by itself."""
        end_command(self._popen)
        self._output.close()

    def release(self, *, is_lost: bool) -> None:
        """Its node has room for another one."""
        self._node.losses += is_lost
        self._node.agents -= 1
        self._node.free = sorted({*self._node.free, *self._gpus})


def count_places(gpus_per_task: int) -> int:
    """For how many tasks there would be room, if the partition had no other job."""
    wanted = os.environ.get("SALLOC_PARTITION", "")
    shown = ask_slurm("sinfo", "--noheader", "--Node", "--format=%P %c %G %T")
    places = 0
    for name, cpus, gres, state in map(str.split, shown.splitlines()):
        is_meant = name.rstrip("*") in wanted.split(",") if wanted else name[-1] == "*"
        if is_meant and not state.startswith(("down", "drain", "fail")):
            fitting = [int(cpus) // CPUS_PER_TASK]
            if gpus_per_task:
                fitting.append(_count_gpus(gres) // gpus_per_task)
            places += min(fitting)
    return places


def list_nodes(job: str) -> list[Node]:
    """The nodes of a job.

    Raises:
        ClusterError: Slurm does not say what the job has of them.
    """
    shares = ask_slurm("scontrol", "show", "job", "--details", "--oneliner", job)
    share = re.compile(r" Nodes=(\S+) CPU_IDs=([\d,-]+) .*?GRES=(\S*)")
    found = share.findall(shares)
    if not found:
        raise ClusterError(
            f"Slurm does not tell which processors of which nodes job {job} has. "
            "Expected 'Nodes=... CPU_IDs=...' from 'scontrol show job --details'. "
            f"Received: {shorten(shares.strip(), _TOLD)}"
        )
    return [
        _describe_node(
            name,
            cpus=_count_cpus(cpus),
            gpus=_count_gpus(gres),
        )
        for names, cpus, gres in found
        for name in ask_slurm("scontrol", "show", "hostnames", names).split()
    ]


def _count_gpus(gres: str) -> int:
    """How many GPUs are among resources such as gpu:fake:2(IDX:0-1)."""
    return sum(map(int, re.findall(r"gpu(?::[^:,()]+)?:(\d+)", gres)))


def _count_cpus(ids: str) -> int:
    """How many numbers a list such as 0-3,8 has."""
    ranges = (part.partition("-") for part in ids.split(","))
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


def _describe_node(name: str, *, cpus: int, gpus: int) -> Node:
    shown = ask_slurm("scontrol", "show", "node", "--oneliner", name)
    told = dict(re.findall(r"(\w+)=(\S*)", shown))
    return Node(
        name=name,
        address=find_address(told["NodeAddr"]),
        cpus=cpus,
        memory_bytes=int(told["RealMemory"]) << 20,
        gpus=gpus,
    )


def find_address(name: str) -> str:
    """The address of a node, from outside of it; empty if that is not known here.

    A host may have its own name stand for its loopback interface, which leads nowhere
    from another host.
    """
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return ""
    is_own = ipaddress.ip_address(address).is_loopback and address != name
    return "" if is_own else address


def choose_host(peers: Iterable[str]) -> str:
    """The bench's address for its peers: one that other hosts reach, if it has one."""
    hosts = [find_address_towards(peer) for peer in peers if peer]
    outer = [h for h in hosts if not ipaddress.ip_address(h).is_loopback]
    return [*outer, *hosts, LOOPBACK][0]


def find_address_towards(peer: str) -> str:
    """The address of the interface that leads to a peer; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((peer, 9))
        return str(sock.getsockname()[0])
