"""A bench that says which processes and files are its own, and then is busy.

Called with who starts the tasks (`fork`, `spawn` or `agents`), the job that they are to
run until this bench is ended (empty: it exits), and a folder for its files.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from agent_support import FolderEngine

from distbench.cluster import ClusterSpec
from distbench.launch import ports
from distbench.launch.engine import Engine, Request
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.servers import get_fork_server
from distbench.launch.start import start_group

OWN = "127.77.0.1"
"""A loopback address on which nobody else takes a port that has become free."""


def main(how: str, job: str, base: str) -> None:
    # Behind a shell's & it would be ignored, and so would the test's.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_here = how in ("fork", "spawn")
    engine: Engine = LocalEngine() if is_here else FolderEngine(Path(base))
    request = Request(
        spec=ClusterSpec.parse("mwms:2"),
        directory=RunDirectory(Path(base)),
        entry="launch_entries:run",
        start=how if is_here else None,  # type: ignore[arg-type]  # one of these
    )
    group = start_group(request, engine)
    shared = group.call("share_memory", {}, deadline=20).values()
    grandchildren = group.call("start_grandchild", {}, deadline=20).values()
    pids = [*group.pids.values(), *(result["pid"] for result in grandchildren)]
    if how == "fork":
        pids.append(get_fork_server((), {}).pid)
    if isinstance(engine, FolderEngine):
        pids += [agent.popen.pid for agent in engine.agents]
    ports.LOOPBACK = OWN
    lease = ports.lease_ports(1)  # it ends with this process
    names = [result["name"] for result in shared]
    told = {"pids": pids, "port": lease.ports[0], "shared": names}
    print(json.dumps(told), flush=True)
    if job:
        group.call(job, {}, deadline=600)


if __name__ == "__main__":
    main(*sys.argv[1:])
