"""Runs the seeded faults and the unusual programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from distbench.checking.check import check_each
from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError, make_unknown_name_error
from distbench.faults import FAULTS, Fault
from distbench.options import CheckOptions
from distbench.selftest.score import Cell, Passed, Score, score_fault, score_program
from distbench.target import parse_target
from distbench.unusual import UNUSUAL, Unusual
from distbench.verdict import Run, Status, Verdict

Tell = Callable[[Cell | Passed, int, int], None]
"""Told of each result, with its number and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A sample on a cluster."""

    sample: Fault | Unusual
    cluster: str


def plan_selftest(
    only: Sequence[str], clusters: Sequence[str] = ()
) -> tuple[Item, ...]:
    """What a selftest runs.

    Args:
        only: Names of faults, of unusual programs or of codes; empty means all.
        clusters: Cluster specs; each sample runs on those of its own that are among
            them. Empty means all.

    Raises:
        BadInputError: A name is unknown, or nothing is left to run.
    """
    samples: tuple[Fault | Unusual, ...] = (*FAULTS, *UNUSUAL)
    known = {sample.name for sample in samples} | {fault.code for fault in FAULTS}
    for name in only:
        if name not in known:
            raise make_unknown_name_error(
                "Fault", name, sorted(known), section="faults"
            )
    wanted = {str(ClusterSpec.parse(cluster)) for cluster in clusters}
    named = tuple(
        Item(sample=sample, cluster=cluster)
        for sample in samples
        for cluster in sample.clusters
        if not only or sample.name in only or getattr(sample, "code", "") in only
    )
    items = tuple(item for item in named if not wanted or item.cluster in wanted)
    if not items:
        which = f"No fault of {', '.join(only)}" if only else "No fault"
        raise BadInputError(
            f"{which} is meant for {', '.join(clusters)}. Expected one of "
            f"{', '.join(sorted({item.cluster for item in named}))}."
        )
    return items


def run_selftest(items: Sequence[Item], tell: Tell = lambda *_: None) -> Score:
    """Check every sample on its clusters."""
    cells: list[Cell] = []
    passed: list[Passed] = []
    for number, result in enumerate(_run_items(items), 1):
        if isinstance(result, Cell):
            cells.append(result)
        else:
            passed.append(result)
        tell(result, number, len(items))
    return Score(faults=tuple(cells), unusual=tuple(passed))


def _run_items(items: Sequence[Item]) -> Iterator[Cell | Passed]:
    for sample, alike in groupby(items, key=lambda item: item.sample):
        start_s = time.monotonic()
        verdicts = check_sample(sample, [item.cluster for item in alike])
        seconds = (time.monotonic() - start_s) / len(verdicts)
        for cluster, verdict in verdicts.items():
            if isinstance(sample, Fault):
                yield score_fault(sample, cluster, verdict, seconds)
            else:
                yield score_program(sample, cluster, verdict, seconds)


def check_sample(
    sample: Fault | Unusual, clusters: Sequence[str]
) -> Mapping[str, Verdict]:
    """Check a sample; its clusters share the single-device run that judges them.

    Args:
        sample: A fault or a correct program.
        clusters: Cluster specs.

    Returns:
        The verdict of each spec; an error where the sample does not run on one device,
        so that it does not hide the others.
    """
    workload = sample.workload
    options = CheckOptions(
        clusters=tuple(clusters),
        # A program's data proves nothing to the exact tier, which would be skipped.
        tiers=("exact", "bounded") if workload == "linear" else ("bounded",),
        workloads=() if workload is None else (workload,),
        in_flight=sample.in_flight,
    )
    try:
        return check_each(parse_target(sample.target), options)
    except BadInputError as error:
        message = str(error)
        return {cluster: _break(sample, cluster, message) for cluster in clusters}


def _break(sample: Fault | Unusual, cluster: str, message: str) -> Verdict:
    broken = Run(
        scenario=sample.name,
        cluster=cluster,
        path="default",
        tier="bounded",
        status=Status.ERROR,
        message=message,
    )
    return Verdict(target=sample.target, runs=(broken,), environment={})
