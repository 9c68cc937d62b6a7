"""Several suites that start clusters at once, and a thief that takes ports meanwhile.

python scripts/reliability_crowd.py        # prints the sums of what was counted
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

LAUNCHES = 50
"""Clusters that each suite starts in a run: with --add, runs add up."""
SUITES = 4
_COUNTED = ("clusters", "started anew on other ports", "failed to start")
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL = (32768, 60999)
_HELD = 500
_EACH_S = 0.0005
_SELF = (sys.executable, __file__)


def steal_ports() -> None:
    """Take ports, for a moment each, for ever; prints a line once it has begun."""
    # The system's own choice is out of this range, and leases ask the system.
    first, last = map(int, _RANGE.read_text().split()) if _RANGE.exists() else _USUAL
    held: list[socket.socket] = []
    while True:
        sock = socket.socket()
        try:
            sock.bind(("127.0.0.1", random.randint(first, last)))
            sock.listen()
        except OSError:
            sock.close()
            continue
        held.append(sock)
        if len(held) == 1:
            print("begun", flush=True)
        if len(held) > _HELD:
            held.pop(0).close()
        time.sleep(_EACH_S)


def launch_clusters(count: int) -> dict[str, int]:
    """Start clusters one after the other; how many needed other ports, or failed."""
    from distbench.cluster import ClusterSpec
    from distbench.errors import ClusterError
    from distbench.launch.deadline import Deadline
    from distbench.launch.rundir import RunDirectory
    from distbench.observe import Launch
    from distbench.observe.launching import OPEN_S, make_opening
    from distbench.scenario import Scenario

    launched, again, failed = _COUNTED
    found = dict.fromkeys(_COUNTED, 0)
    with RunDirectory() as directory:
        launch = Launch(directory=directory)
        spec = ClusterSpec.parse("mwms:2@cpu")
        scenario = Scenario(target="crowd")
        for _ in range(count):
            opening = make_opening(scenario, Deadline(OPEN_S))
            try:
                with launch.start_cluster(spec, opening) as group:
                    found[again] += group.attempts - 1
            except ClusterError as error:
                print(error, file=sys.stderr)
                found[failed] += 1
            found[launched] += 1
    return found


def crowd() -> dict[str, int]:
    """All suites and the thief; the sums of what they found."""
    with contextlib.ExitStack() as running:
        thief = subprocess.Popen([*_SELF, "steal"], stdout=subprocess.PIPE)
        running.callback(thief.wait)
        running.callback(thief.kill)
        assert thief.stdout is not None
        if not thief.stdout.readline():
            raise RuntimeError("the thief of ports did not begin")
        suites = [
            subprocess.Popen([*_SELF, "launch"], stdout=subprocess.PIPE)
            for _ in range(SUITES)
        ]
        answers = [json.loads(suite.communicate()[0]) for suite in suites]
        if thief.poll() is not None:
            raise RuntimeError(f"the thief of ports ended with {thief.returncode}")
    return {name: sum(answer[name] for answer in answers) for name in answers[0]}


if __name__ == "__main__":
    if sys.argv[1:] == ["steal"]:
        steal_ports()
    result = launch_clusters(LAUNCHES) if sys.argv[1:] == ["launch"] else crowd()
    print(json.dumps(result))
