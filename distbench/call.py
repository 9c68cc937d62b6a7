"""Runs any function on every task of a fresh cluster."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.engines import open_engine
from distbench.errors import (
    BadInputError,
    ClusterError,
    make_unknown_name_error,
    read_message,
)
from distbench.fault import Fault, check_faults
from distbench.launch.failure import TaskFailedError
from distbench.launch.rundir import RunDirectory
from distbench.launch.spares import SPARES, Spares
from distbench.launch.start import Job
from distbench.limits import UNASKED_S, check_memory, check_seed, check_timeout
from distbench.observe import Launch
from distbench.observe.injuries import make_injury
from distbench.pickling import pickle_by_value
from distbench.typed import as_declared, check_kind, list_given


def run(
    function: Callable[..., Any],
    cluster: str = "mwms:2",
    *,
    args: tuple[Any, ...] = (),
    timeout_s: float = UNASKED_S,
    memory_gib: float | None = None,
    seed: int = 1,
    faults: Fault | str | Iterable[Fault | str] = (),
    engine: str = "local",
    allow_public: bool = False,
    spares: Spares | None = None,
    **unknown: Any,
) -> Mapping[tuple[str, int], Any]:
    """Run a function on every task of a fresh cluster, each with its TF_CONFIG.

    Under `ps` the chief and the workers run it, while workers and parameter servers
    serve. `one`, `mirrored` and `central` have one worker.

    Where another process takes the port of a task before the function's own server can
    bind it, the function begins anew in fresh processes, with other ports.

    Args:
        function: What to run; a lambda or a local function will do.
        cluster: A cluster spec.
        args: Arguments for every task.
        timeout_s: Deadline, in seconds.
        memory_gib: How much memory each task may take; None lets them take together
            what the machine can spare.
        seed: TensorFlow's global seed in every task.
        faults: What befalls tasks, at steps of which the function tells by
            `distbench.report_step`: kill, restart, stop and delay of `distbench.Fault`.
            The others go on without a task that was killed or stopped for good.
        engine: Who starts the tasks: `local`, `slurm` or `ray`.
        allow_public: Whether the nodes of an engine may have public addresses.
        spares: Has tasks of this machine that wait; see `distbench.Spares`. In them the
            function finds TensorFlow started: it can set up no devices any more.
        **unknown: Refused, with the name that is nearest.

    Returns:
        What each task's call returned, by role and index; nothing of a lost one.

    Raises:
        BadInputError: An argument cannot be used, the function or what it returns
            cannot be pickled, or a fault has not happened, since nobody told of its
            step.
        ClusterError: A task raised, died or gave no answer, and the first one is named;
            or the machine lacks what the cluster needs.
    """
    for name in unknown:
        raise make_unknown_name_error("Option", name, _list_options())
    if not callable(function) or not isinstance(args, tuple | list):
        raise BadInputError(
            "distbench.run takes a function, and args as a tuple. "
            f"Received: {function!r} and args={args!r}."
        )
    timeout_s = as_declared("timeout_s", timeout_s, float)
    check_timeout(timeout_s)
    check_kind("spares", spares, Spares, SPARES)
    seed = as_declared("seed", seed, int)
    check_seed(seed)
    memory_gib = as_declared("memory_gib", memory_gib, float | None)
    check_memory(memory_gib)
    wanted = ClusterSpec.parse(as_declared("cluster", cluster, str))
    injected = tuple(Fault.parse(str(fault)) for fault in list_given(faults))
    with (
        RunDirectory() as directory,
        open_engine(engine, [[wanted]], allow_public=allow_public) as opened,
    ):
        machine = opened.inspect()
        spec = wanted.resolve(gpus=machine.gpus, cpus=machine.cores)
        if lack := machine.find_lack(spec):
            raise ClusterError(f"Cluster '{spec}' cannot be started: {lack}.")
        _check_faults(injected, spec)
        folder = directory.make_folder("call")
        name = getattr(function, "__qualname__", type(function).__qualname__)
        called = pickle_by_value(function, f"{name} with its args", args)
        (folder / "called.pkl").write_bytes(called)
        runners = [task for task in spec.tasks if task.role != "ps"]
        job = Job(
            name="call",
            payload={
                "folder": str(folder),
                "seed": seed,
                "waits": [fault.step for fault in injected],
            },
            deadline=timeout_s,
            injuries=tuple(make_injury(fault, goes_on=True) for fault in injected),
        )
        launch = Launch(
            directory=directory,
            memory_gib=memory_gib,
            engine=opened,
            # Who comes back at its address begins with what it was started for.
            spares=None if injected else spares,
        )
        ahead = Job(name="stand_by", payload={"seed": seed})
        with _told_what_was_done(), launch.start_cluster(spec, job, ahead) as group:
            if group.pending:
                raise BadInputError(
                    f"{', '.join(group.pending)}: nothing has happened, since no such "
                    "step was told of. Call distbench.report_step(step) where a step "
                    "begins, or name an earlier step."
                )
            return {
                (task.role, task.index): _read_result(
                    folder / f"result-{task}.pkl", str(task)
                )
                for task in runners
                if task not in group.lost
            }


def _list_options() -> list[str]:
    """The names of what `run` takes by name."""
    given = inspect.signature(run).parameters.values()
    return sorted(p.name for p in given if p.kind is p.KEYWORD_ONLY)


def _read_result(path: Path, task: str) -> Any:
    content = path.read_bytes()
    try:
        return pickle.loads(content)
    except Exception as error:  # a user's __setstate__ may raise anything
        raise BadInputError(
            f"What the function returned in {task} was sent, and cannot be read here "
            f"({type(error).__name__}: {read_message(error)}). Expected: what pickle "
            "brings back, such as numbers, arrays and containers of them."
        ) from error


def _check_faults(faults: tuple[Fault, ...], spec: ClusterSpec) -> None:
    check_faults(map(str, faults), spec, steps=None, in_flight=1)
    for fault in faults:
        if fault.task is None:
            raise BadInputError(
                f"Fault '{fault}' befalls a replica's numbers, and what a function "
                "computes the bench does not know. Expected kill, restart, stop or "
                "delay, or distbench.check(..., faults=...)."
            )


@contextmanager
def _told_what_was_done() -> Iterator[None]:
    """Failures say what was done on purpose before; bad input is the caller's."""
    try:
        yield
    except TaskFailedError as error:
        if error.kind == "input":
            raise BadInputError(error.message) from error
        if not error.injury:
            raise
        raise ClusterError(
            f"On purpose {error.injury}. {error}", detail=error.detail
        ) from error
