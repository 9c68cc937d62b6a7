"""A bench with light tasks on an engine's nodes; says what it sees, as lines of JSON.

Started with an engine, a cluster spec and an action: `describe`, `lose` (the
agent of the last task is killed) or `wait` (until the bench is killed).
"""

from __future__ import annotations

import json
import sys

import psutil

from distbench.cluster import ClusterSpec
from distbench.engines import open_engine
from distbench.launch.engine import Request
from distbench.launch.failure import TaskFailedError
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import start_group

TIMEOUT_S = 30.0


def main(name: str, text: str, action: str) -> None:
    """Start the tasks, and do what the action says."""
    spec = ClusterSpec.parse(text)
    with (
        RunDirectory() as directory,
        open_engine(name, [[spec]], log=say_note) as engine,
        start_group(
            Request(
                spec=spec,
                directory=directory,
                entry="launch_entries:run",
                preload=("launch_entries",),
            ),
            engine,
        ) as group,
    ):
        seen = group.call("describe", {}, deadline=TIMEOUT_S)
        agents = {task: find_agent(pid) for task, pid in group.pids.items()}
        say(
            {
                "gpus": engine.inspect().gpus,
                "pids": [*group.pids.values(), *(a.pid for a in agents.values())],
                "addresses": next(iter(seen.values()))["addresses"],
                "visible": {
                    str(task): answer["environment"].get("CUDA_VISIBLE_DEVICES")
                    for task, answer in seen.items()
                },
            }
        )
        if action == "wait":
            group.call("wait_stubbornly", {}, deadline=600.0)
        elif action == "lose":
            wait = group.submit("wait", {}, deadline=TIMEOUT_S)
            agents[group.tasks[-1]].kill()
            try:
                wait()
            except TaskFailedError as error:
                say({"kind": error.kind, "message": str(error)})
            unprepared = Request(
                spec=spec, directory=directory, entry="launch_entries:run"
            )
            with start_group(unprepared, engine) as other:
                say({"again": len(other.call("echo", {}, deadline=TIMEOUT_S))})


def find_agent(pid: int) -> psutil.Process:
    """The agent on whose node a task runs: it started the task's fork server."""
    return psutil.Process(pid).parents()[1]


def say_note(text: str) -> None:
    """Tell what the engine tells."""
    say({"note": text})


def say(what: object) -> None:
    """One line."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
