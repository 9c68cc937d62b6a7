"""Runs any function on every task of a fresh cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import Job
from distbench.machine import inspect_machine
from distbench.observe import Launch
from distbench.target import pickle_by_value


def run(
    function: Callable[..., Any],
    cluster: str = "mwms:2",
    *,
    args: tuple[Any, ...] = (),
    timeout_s: float = 120.0,
    memory_gib: float | None = None,
    seed: int = 1,
) -> Mapping[tuple[str, int], Any]:
    """Run a function on every task of a fresh cluster, each with its TF_CONFIG.

    Under `ps` the chief and the workers run it, while workers and parameter servers
    serve. `one`, `mirrored` and `central` have one worker.

    Args:
        function: What to run; a lambda or a local function will do.
        cluster: A cluster spec.
        args: Arguments for every task.
        timeout_s: Deadline, in seconds.
        memory_gib: How much memory each task may take; None lets them take together
            what the machine can spare.
        seed: TensorFlow's global seed in every task.

    Returns:
        What each task's call returned, by role and index.

    Raises:
        BadInputError: The spec is none, or the function cannot be pickled.
        ClusterError: A task raised, died or gave no answer; the first one is named.
    """
    if memory_gib is not None and memory_gib <= 0:
        raise BadInputError(
            f"memory_gib must be a positive number of GiB. Received: {memory_gib}."
        )
    machine = inspect_machine()
    spec = ClusterSpec.parse(cluster).resolve(gpus=machine.gpus, cpus=machine.cores)
    with RunDirectory() as directory:
        folder = directory.make_folder("call")
        name = getattr(function, "__qualname__", type(function).__qualname__)
        (folder / "function.pkl").write_bytes(pickle_by_value(function, name))
        (folder / "args.pkl").write_bytes(pickle_by_value(args, f"args of {name}"))
        runners = [task for task in spec.tasks if task.role != "ps"]
        job = Job(
            name="call",
            payload={"folder": str(folder), "seed": seed},
            timeout_s=timeout_s,
        )
        launch = Launch(directory=directory, memory_gib=memory_gib)
        with launch.start_cluster(spec, job):
            return {
                (task.role, task.index): pickle.loads(
                    (folder / f"result-{task}.pkl").read_bytes()
                )
                for task in runners
            }
