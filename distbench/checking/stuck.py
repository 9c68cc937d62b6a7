"""Says of workers that wait for each other for ever where they wait, and why."""

from __future__ import annotations

from pathlib import Path

from distbench.cluster import ClusterSpec
from distbench.codes import CODES
from distbench.launch.failure import TaskFailedError
from distbench.trace import Trace
from distbench.trace.files import read_trace
from distbench.verdict import Finding


def read_parts(
    folder: Path | None, spec: ClusterSpec, tier: str | None
) -> tuple[Trace | None, ...]:
    """What each worker had recorded of the steps that it finished; None of none."""
    stems = [f"partly-{tier}-{task}" for task in spec.tasks]
    return tuple(
        read_trace(folder, stem)
        if folder is not None and (folder / f"{stem}.json").exists()
        else None
        for stem in stems
    )


def make_mismatch(
    failure: TaskFailedError, spec: ClusterSpec, parts: tuple[Trace | None, ...]
) -> Finding:
    """The finding for a collective that not all workers came to.

    Args:
        failure: Of the worker whose collective reached its deadline first.
        spec: The cluster.
        parts: See `read_parts`.
    """
    finished = [0 if part is None else part.steps for part in parts]
    step = min(finished)
    late = [str(t) for t, n in zip(spec.tasks, finished, strict=True) if n == step]
    where = "the workers wait in different collectives"
    if len(late) < len(finished):
        names = ", ".join(late)
        where = f"{names} waits in a collective to which the others do not come"
    if overflowing := find_overflowing(parts, step):
        names = ", ".join(map(str, overflowing))
        where += (
            f": the gradients of replica {names} alone overflowed, and who skips a "
            "step leaves the others waiting for its part of the sum"
        )
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
            f"Step {step} on '{spec}': {where}. The first to give up did so in "
            f"'{failure.message}' (collective-mismatch). "
            f"{CODES['collective-mismatch'].fix}"
        ),
        confidence=1.0,
    )


def find_overflowing(parts: tuple[Trace | None, ...], step: int) -> tuple[int, ...]:
    """Replicas that got past a step with gradients of their own that overflowed."""
    finite = {
        replica: good
        for part in parts
        if part is not None
        for replica, good in part.find_finite(step).items()
    }
    return tuple(replica for replica in sorted(finite) if not finite[replica])
