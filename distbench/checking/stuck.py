"""Says of workers that wait for each other for ever where they wait, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from distbench.checking.uneven import describe_uneven
from distbench.cluster import ClusterSpec, Task
from distbench.codes import CODES
from distbench.launch.failure import TaskFailedError
from distbench.trace import Trace
from distbench.trace.files import read_trace
from distbench.verdict import Finding


def never_meet(failure: TaskFailedError, spec: ClusterSpec) -> bool:
    """Whether the workers would wait for ever, however long they are given.

    They would where each one waits in a collective or has ended its job, but not all in
    the same collective with the same shape. Who is elsewhere may only be slow. Replicas
    of one task come to all of their collectives together.
    """
    waits = failure.collectives
    if any(wait["mismatch"] for wait in waits.values()):
        return True
    if not (spec.traits.collective and waits):
        return False
    if any(task not in waits for task in failure.waiting):
        return False
    places = {(wait["number"], wait["shape"]) for wait in waits.values()}
    return len(places) > 1 or len(waits) < len(spec.tasks)


def read_parts(
    folder: Path | None, spec: ClusterSpec, tiers: Sequence[str]
) -> tuple[Trace | None, ...]:
    """What each worker had recorded of the steps that it finished; None of none.

    Args:
        folder: Where they wrote it.
        spec: The cluster.
        tiers: In the order in which they are run: it is of the last that was begun.
    """
    for tier in reversed(tiers):
        stems = [f"observed-{tier}-{task}" for task in spec.tasks]
        parts = tuple(_read_written(folder, stem) for stem in stems)
        if any(part is not None for part in parts):
            return parts
    return (None,) * len(spec.tasks)


def _read_written(folder: Path | None, stem: str) -> Trace | None:
    if folder is None or not (folder / f"{stem}.json").exists():
        return None
    return read_trace(folder, stem)


def read_shards(folder: Path | None, tiers: Iterable[str]) -> tuple[int, ...]:
    """Examples of each replica, by the run on one device; empty if there is none."""
    traces = (_read_written(folder, f"reference-{tier}") for tier in tiers)
    return next((trace.shards for trace in traces if trace is not None), ())


def make_mismatch(
    failure: TaskFailedError,
    spec: ClusterSpec,
    parts: tuple[Trace | None, ...],
    shards: tuple[int, ...] = (),
) -> Finding:
    """The finding for a collective that not all workers came to.

    Args:
        failure: Of workers that never meet.
        spec: The cluster.
        parts: See `read_parts`.
        shards: See `read_shards`.
    """
    step = min(0 if part is None else part.steps for part in parts)
    places = [_describe_place(task, failure) for task in spec.tasks]
    where = "; ".join(places)
    who = "workers" if spec.traits.collective else "replicas"
    if overflowing := find_overflowing(parts, step):
        names = ", ".join(map(str, overflowing))
        where += (
            f": the gradients of replica {names} alone overflowed, and who skips a "
            "step leaves the others waiting for its part of the sum"
        )
    if words := describe_uneven(failure.collectives.values(), shards):
        where += f". {words}"
    return Finding(
        code="collective-mismatch",
        phase="step",
        step=step,
        variable="",
        replicas=tuple(range(spec.replicas)),
        ratio=None,
        error=float("inf"),
        bound=0.0,
        explanation=(
            f"Step {step} on '{spec}': the {who} come to other collectives, and would "
            f"wait for each other for ever. {where} (collective-mismatch). "
            f"{CODES['collective-mismatch'].fix}"
        ),
        confidence=1.0,
    )


def _describe_place(task: Task, failure: TaskFailedError) -> str:
    wait = failure.collectives.get(task)
    if wait is None:
        return f"{task} {'is elsewhere' if task in failure.waiting else 'has ended'}"
    return f"{task} waits in {wait['words']}"


def find_overflowing(parts: tuple[Trace | None, ...], step: int) -> tuple[int, ...]:
    """Replicas that got past a step with gradients of their own that overflowed."""
    finite = {
        replica: good
        for part in parts
        if part is not None
        for replica, good in part.find_finite(step).items()
    }
    return tuple(replica for replica in sorted(finite) if not finite[replica])
