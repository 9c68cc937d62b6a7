"""Makes a scenario smaller for as long as it still shows the same finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from distbench.cluster import ONE, ClusterSpec
from distbench.errors import BadInputError, ClusterError, count_things
from distbench.limits import UNASKED_S
from distbench.options import CheckOptions
from distbench.scenario import Scenario, find_asked_split
from distbench.scenario.choices import WORKLOADS
from distbench.verdict import Finding, Run, Status, Verdict

Check = Callable[[CheckOptions], Verdict]
"""Checks the subject once more."""

_CHANCES = 3
_TWO_SHARDS = "fixed:2"
_SIMPLE = ("linear", "embedding", "regularized", "constrained")
"""Workloads, the one that is easiest to read first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One check on the way to the smallest scenario.

    Attributes:
        options: What was checked: one scenario in one tier.
        verdict: What came out; None where the check could not be made.
        shows: Whether the first finding is still the same.
        why: What came out instead.
    """

    options: CheckOptions
    verdict: Verdict | None = None
    shows: bool = False
    why: str = ""


def name_options(options: CheckOptions) -> str:
    """The size of a scenario in a few words."""
    parts = [*options.clusters, *options.workloads, *options.tiers]
    parts.append(count_things(options.first_steps, "step"))
    if options.examples:
        parts.append(count_things(options.examples, "example"))
    if options.split:
        parts.append("split " + ",".join(map(str, options.split)))
    if options.restore_from:
        parts.append(f"from {options.restore_from}")
    if options.in_flight > 1:
        parts.append(f"{options.in_flight} in flight")
    if options.partitioner:
        parts.append(options.partitioner)
    return ", ".join(parts)


def make_start(scenario: Scenario, run: Run) -> CheckOptions:
    """The options that check one run of a verdict again, and nothing else.

    Args:
        scenario: What was run.
        run: The run that has the finding.
    """
    is_brought = scenario.workload not in WORKLOADS
    return CheckOptions(
        clusters=(scenario.cluster,),
        paths=(scenario.path,),
        tiers=(run.tier,),
        workloads=() if is_brought else (scenario.workload,),
        steps=scenario.steps,
        dtype=scenario.dtype,
        seed=scenario.seed,
        keras=scenario.keras,
        jit=scenario.jit,
        timeout_s=None if scenario.timeout_s == UNASKED_S else scenario.timeout_s,
        restore_from=scenario.restore_from or None,
        restore_after=scenario.restore_after,
        in_flight=scenario.in_flight,
        partitioner=scenario.partitioner or None,
        restore_partitioner=scenario.restore_partitioner or None,
        faults=scenario.faults,
        examples=0 if is_brought else scenario.examples,
        loss_weight=scenario.loss_weight,
        split=find_asked_split(scenario.workload, scenario.split),
    )


def shrink(
    start: CheckOptions, wanted: Finding, check: Check, tries: int
) -> Iterator[Try]:
    """Check smaller and smaller scenarios; the last one that shows it is the smallest.

    Cluster, the one that saves, workload, shards, steps in flight, steps and examples
    are made smaller in turn, each to the smallest that still shows the finding: the
    same code, first wrong in the same phase. How a race shows is chance, so steps in
    flight get a few tries.

    Args:
        start: The scenario that showed it.
        wanted: The finding.
        check: Makes a check.
        tries: How many checks at most, the one of the start included.

    Yields:
        Every check, the first ones those of the start; where none of them shows the
        finding, there are no others.
    """
    left, smallest = tries, start
    for list_smaller in (
        _list_start,
        _list_clusters,
        _list_savers,
        _list_workloads,
        _list_partitioners,
        _list_in_flight,
        _list_steps,
        _list_examples,
    ):
        for options in list_smaller(smallest):
            if left <= 0:
                return
            left -= 1
            made = _try(options, wanted, check)
            yield made
            if made.shows:
                smallest = options
                break
        else:
            if list_smaller is _list_start:
                return


def _try(options: CheckOptions, wanted: Finding, check: Check) -> Try:
    try:
        verdict = check(options)
    except (BadInputError, ClusterError) as error:
        return Try(options=options, why=str(error))
    first = _find_first(verdict)
    if first is None:
        return Try(options=options, verdict=verdict, why=str(verdict.status))
    return Try(
        options=options,
        verdict=verdict,
        shows=(first.code, first.phase) == (wanted.code, wanted.phase),
        why=f"{first.code} in {first.phase}",
    )


def _find_first(verdict: Verdict) -> Finding | None:
    failed = (run for run in verdict.runs if run.status is Status.FAIL)
    findings = (f for run in failed for f in run.findings if not f.warning)
    return next(findings, None)


def _list_start(options: CheckOptions) -> Iterator[CheckOptions]:
    """What showed it: once, and of steps in flight until chance shows it again."""
    for _ in range(1 if options.in_flight == 1 else _CHANCES):
        yield options


def _change(options: CheckOptions, **changes: Any) -> Iterator[CheckOptions]:
    """Other options, if there can be such.

    A fault needs its step, and a task or replica that a smaller cluster may lack.
    """
    try:
        changed = replace(options, **changes)
    except BadInputError:
        return
    yield changed


def _list_clusters(options: CheckOptions) -> Iterator[CheckOptions]:
    """Fewer tasks: one process, then the same kind with fewer of everything.

    What takes no GPUs unless it has to needs none to be smaller.
    """
    spec = ClusterSpec.parse(options.clusters[0])
    for text in spec.traits.smaller:
        smaller = ClusterSpec.parse(text)
        if smaller.traits.takes_gpus:
            smaller = replace(smaller, device=spec.device)
        if (len(smaller.tasks), smaller.replicas) < (len(spec.tasks), spec.replicas):
            asked = options.split if smaller.replicas == spec.replicas else ()
            yield from _change(options, clusters=(str(smaller),), split=asked)


def _list_savers(options: CheckOptions) -> Iterator[CheckOptions]:
    """One device saves what the cluster restores, which then has it as one device."""
    saver = options.restore_from
    if saver is not None and not ClusterSpec.parse(saver).traits.single:
        yield from _change(options, restore_from=str(ONE), restore_partitioner=None)


def _list_workloads(options: CheckOptions) -> Iterator[CheckOptions]:
    if not options.workloads or options.in_flight > 1:
        return  # one workload alone tells of many steps at a time
    for name in _SIMPLE:
        if name == options.workloads[0]:
            return
        yield from _change(options, workloads=(name,))


def _list_partitioners(options: CheckOptions) -> Iterator[CheckOptions]:
    """Whole variables, then two shards of each."""
    if options.partitioner and not options.restore_partitioner:
        yield from _change(options, partitioner=None)
        if options.partitioner != _TWO_SHARDS:
            yield from _change(options, partitioner=_TWO_SHARDS)


def _list_in_flight(options: CheckOptions) -> Iterator[CheckOptions]:
    """One step at a time has other tiers, and is another scenario: two and more."""
    in_flight = 2
    while in_flight < options.in_flight:
        yield from _change(options, in_flight=in_flight)
        in_flight *= 2


def _list_steps(options: CheckOptions) -> Iterator[CheckOptions]:
    for steps in range(1, options.first_steps):
        yield from _change(options, steps=steps)


def _list_examples(options: CheckOptions) -> Iterator[CheckOptions]:
    """Of a workload of the bench: one example for each replica, then more."""
    if not options.workloads or options.in_flight > 1:
        return
    replicas = ClusterSpec.parse(options.clusters[0]).replicas
    examples = 1 << (replicas - 1).bit_length()
    # A check takes four for each replica, and eight at least, where none are named.
    most = options.examples or sum(options.split) or max(8, 4 * examples)
    while examples < most:
        yield from _change(options, examples=examples, split=())
        examples *= 2
