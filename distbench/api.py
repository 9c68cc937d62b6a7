"""The Python interface: check a subject, run a function on every task."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

from distbench.check import check_target
from distbench.cluster import ClusterSpec
from distbench.expect import apply_expectations
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import Job
from distbench.machine import inspect_machine
from distbench.observe import Launch
from distbench.options import CheckOptions, Progress
from distbench.target import TargetRef, parse_target, write_pickled_target
from distbench.verdict import Verdict


def check(
    subject: object,
    cluster: str = "mwms:2",
    *,
    path: str = "default",
    workload: str | None = None,
    tier: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Verdict:
    """Check a subject on one cluster.

    Args:
        subject: An optimizer factory or a train program; a lambda or a local class
            will do. A text is a TARGET such as `package.module:attribute`.
        cluster: A cluster spec.
        path: The aggregation path.
        workload: The workload for an optimizer; None takes the default ones.
        tier: The tier; None takes the default ones.
        progress: Who wants to know how far it is.
        **options: Further fields of `distbench.options.CheckOptions`.

    Returns:
        The verdict; `verdict.raise_for_status()` fails a test with the diagnosis.

    Raises:
        BadInputError: The subject or an option cannot be used; names the thing.
    """
    if workload is not None:
        options["workloads"] = (workload,)
    if tier is not None:
        options["tiers"] = (tier,)
    chosen = CheckOptions(clusters=(cluster,), paths=(path,), **options)
    if isinstance(subject, TargetRef):
        verdict = check_target(subject, chosen, progress)
    elif isinstance(subject, str):
        verdict = check_target(parse_target(subject), chosen, progress)
    else:
        with RunDirectory() as directory:
            target = write_pickled_target(subject, directory.path)
            verdict = check_target(target, chosen, progress)
    return apply_expectations(verdict, chosen.expect)


def run(
    function: Callable[..., Any],
    cluster: str = "mwms:2",
    *,
    args: tuple[Any, ...] = (),
    timeout_s: float = 120.0,
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
        seed: TensorFlow's global seed in every task.

    Returns:
        What each task's call returned, by role and index.

    Raises:
        BadInputError: The spec is none, or the function cannot be pickled.
        ClusterError: A task raised, died or gave no answer; the first one is named.
    """
    machine = inspect_machine()
    spec = ClusterSpec.parse(cluster).resolve(gpus=machine.gpus, cpus=machine.cores)
    with RunDirectory() as directory:
        folder = directory.make_folder("call")
        (folder / "function.pkl").write_bytes(cloudpickle.dumps((function, args)))
        runners = [task for task in spec.tasks if task.role != "ps"]
        job = Job(
            name="call",
            payload={"folder": str(folder), "seed": seed},
            timeout_s=timeout_s,
        )
        with Launch(directory=directory).start_cluster(spec, job):
            return {
                (task.role, task.index): pickle.loads(
                    (folder / f"result-{task}.pkl").read_bytes()
                )
                for task in runners
            }
