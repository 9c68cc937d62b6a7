"""The numbers of a check's runs as TensorFlow summaries, for TensorBoard.

Every replica is a run of its own there, and so is one device, so that TensorBoard lays
what the replicas did over each other and over what they should have done.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from distbench.checking.launches import make_launch
from distbench.details import Compared, Details, Series
from distbench.launch.rundir import RunDirectory
from distbench.observe import start_one
from distbench.options import CheckOptions
from distbench.trace import WHOLE
from distbench.verdict import Verdict

_TIMEOUT_S = 120.0
_LONGEST = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One curve of TensorBoard.

    Attributes:
        folder: Of the run, below the folder that TensorBoard is given.
        tag: What TensorBoard calls it; groups end with `/`.
        steps: Step numbers; -1 before the first step.
        values: One for each step.
    """

    folder: str
    tag: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


def write_summaries(verdict: Verdict, options: CheckOptions, folder: Path) -> None:
    """Write what the runs kept: losses, norms of the state, and errors over bounds.

    A task writes them: the bench's own process has no TensorFlow.

    Args:
        verdict: Runs with details.
        options: Those of the check, so that its fork server can be used.
        folder: What TensorBoard is started with.

    Raises:
        ClusterError: They could not be written.
    """
    scalars = [asdict(scalar) for scalar in list_scalars(verdict)]
    if not scalars:
        return
    with RunDirectory() as directory:
        source = directory.path / "scalars.json"
        source.write_text(json.dumps(scalars), "utf-8")
        # No code of the user's runs here, so no limit of its memory counts.
        launch = make_launch(directory, replace(options, memory_gib=None))
        payload = {"source": str(source), "folder": str(folder.absolute())}
        with start_one(launch, options.seed, options.jit) as one:
            one.call("summarise", payload, deadline=_TIMEOUT_S)


def list_scalars(verdict: Verdict) -> Iterator[Scalar]:
    """Every curve of every run that kept its details."""
    used: set[str] = set()
    for run in verdict.runs:
        if run.details is None:
            continue
        place = name = _name_folder(f"{run.scenario}.{run.tier}")
        number = 1
        while place in used:
            number += 1
            place = f"{name}.{number}"
        used.add(place)
        for who, tag, steps, values in _list_curves(run.details):
            yield Scalar(folder=f"{place}/{who}", tag=tag, steps=steps, values=values)


Curve = tuple[str, str, tuple[int, ...], tuple[float, ...]]


def _list_curves(details: Details) -> Iterator[Curve]:
    for line in details.series:
        yield _name_source(line), _name_tag(line), line.steps, line.values
    worst: dict[tuple[str, str], dict[int, float]] = {}
    for item in details.compared:
        tag = f"error_over_bound/{_join(item.phase, item.variable)}"
        steps = worst.setdefault((_name_replica(item.replica), tag), {})
        steps[item.step] = max(steps.get(item.step, 0.0), _weigh(item))
    for (who, tag), known in worst.items():
        order: Sequence[int] = sorted(known)
        yield who, tag, tuple(order), tuple(known[step] for step in order)


def _weigh(item: Compared) -> float:
    quotient = item.error_over_bound
    return math.inf if math.isnan(quotient) else quotient


def _name_tag(line: Series) -> str:
    if line.phase == "loss":
        return f"metric/{line.variable}" if line.variable else "loss"
    return f"norm/{_join(line.phase, line.variable)}"


def _join(phase: str, variable: str) -> str:
    return f"{phase}/{variable}" if variable else phase


def _name_source(line: Series) -> str:
    if line.observed:
        return _name_replica(line.replica)
    return "one-device" if line.replica == WHOLE else f"one-device-shard-{line.replica}"


def _name_replica(replica: int) -> str:
    return "all-replicas" if replica == WHOLE else f"replica-{replica}"


def _name_folder(text: str) -> str:
    """A name of one folder, on every system: no separators and no colons."""
    name = re.sub(r"[^\w.+@=-]+", "_", text, flags=re.ASCII)
    return name.strip(".")[:_LONGEST] or "run"
