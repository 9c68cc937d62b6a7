"""A function of the user's, run in every task."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from distbench.errors import BadInputError
from distbench.launch.ports import is_bindable
from distbench.launch.tf_config import LOOPBACK
from distbench.pickling import pickle_with_places
from distbench.reported_steps import listen
from distbench.worker.jobs.task import Task
from distbench.worker.process.ahead import take_a_step_apart
from distbench.worker.process.chance import seed_chance
from distbench.worker.process.failures import SubjectError, has_lost_port
from distbench.worker.process.strategies import configure_runtime


class CallJobs:
    """The jobs of `distbench.run`.

    Args:
        task: The task.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._is_serving: bool | None = None

    def stand_by(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start TensorFlow, before it is known for which function."""
        task = self._task
        configure_runtime(task.spec, task.role, payload["seed"])
        self._is_serving = task.serve()
        if payload.get("ahead") and not task.spec.traits.scheduled:
            take_a_step_apart(task.spec)
            seed_chance(payload["seed"])
        return {}

    def call(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a function of the user's in this task; writes what it returns."""
        if self._is_serving is None:
            self.stand_by(payload)
        if not (self._is_serving and self._task.role == "ps"):
            _call(self._task, payload)
        return {}


def _call(task: Task, payload: Mapping[str, Any]) -> None:
    folder = Path(payload["folder"])
    waits = frozenset(payload["waits"])
    listen(
        lambda step: task.report_progress(step=step, phase="call", waits=step in waits)
    )
    try:
        function, args = pickle.loads((folder / "called.pkl").read_bytes())
        value = function(*args)
    except BaseException as error:  # the user's code may leave by sys.exit
        if has_lost_port(error) and _is_port_taken(task.address):
            raise
        raise SubjectError("call", None) from error
    path = folder / f"result-{task.name}.pkl"
    temporary = path.with_suffix(".tmp")
    try:
        content = pickle_with_places(value)
    except Exception as error:  # a user's object may raise anything
        raise BadInputError(
            f"What the function returned in {task.name} cannot be sent back. Expected: "
            "what pickle takes, such as numbers, arrays and containers of them. "
            f"Received: an object of type '{type(value).__name__}' ({error})."
        ) from error
    # What the disk lacks is no fault of the value.
    temporary.write_bytes(content)
    temporary.replace(path)


def _is_port_taken(address: tuple[str, int] | None) -> bool:
    """Whether somebody else has the port: else a server of its own wanted another."""
    if address is None:
        return False
    host, port = address
    # Of another interface than loopback nobody is asked.
    if host == LOOPBACK and is_bindable(port):
        return False
    connections = psutil.Process().net_connections("tcp")
    listening = {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
    return port not in listening
