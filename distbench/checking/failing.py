"""Judges a run that ended with an exception, a deadline or a task lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from distbench.checking.controls import Controls
from distbench.checking.origin import are_alike, is_deliberate, is_installed
from distbench.checking.plan import Planned, list_possible
from distbench.checking.runs import end_uncompared, tell_injury
from distbench.checking.stuck import (
    find_overflowing,
    make_mismatch,
    never_meet,
    read_parts,
    read_shards,
)
from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.evidence import Tier
from distbench.launch.failure import TaskFailedError
from distbench.observe import Observation
from distbench.scenario import Scenario
from distbench.scenario.choices import PROGRAM
from distbench.split import tell_split
from distbench.trace import PHASES
from distbench.verdict import Finding, Run, Status
from distbench.xla import tell_compiled

_MEANT: Mapping[str, str] = {
    "destinations can not be empty": "A worker with one replica cannot sum or gather "
    "what is an argument of its step, such as labels: hand over its tf.identity.",
    "Unable to lift tensor <": "A variable is made inside of the step, whose graph its "
    "first value cannot be taken out of: make it before the first step, in build().",
    **{
        f"'NoneType' object has no attribute '{name}'": (
            "tf.distribute.get_replica_context() is None wherever no replica runs, "
            "such as under a scope where a model is built: have the first step build "
            "it, or do without where it is None."
        )
        for name in (
            "all_gather",
            "all_reduce",
            "merge_call",
            "replica_id_in_sync_group",
        )
    },
}
"""What is meant by words of the framework that do not say it."""


class _End(NamedTuple):
    """How a scenario that failed ended."""

    status: Status
    message: str
    detail: str = ""
    findings: tuple[Finding, ...] = ()


class Failing:
    """Tells the subject's own failures from the framework's and the bench's.

    Args:
        tiers: Those of the check.
        controls: Runs a stock optimizer in the subject's place.
        observe_again: Has a scenario run by itself, and returns what was seen of it;
            its runs, where nothing could be.
    """

    def __init__(
        self,
        tiers: tuple[Tier, ...],
        controls: Controls,
        observe_again: Callable[[Planned], Observation | tuple[Run, ...]],
    ) -> None:
        self._tiers = tiers
        self._controls = controls
        self._observe_again = observe_again

    def judge(
        self, item: Planned, seen: Observation, failure: TaskFailedError
    ) -> Iterator[Run]:
        """The runs of a scenario that failed.

        Raises:
            BadInputError: The subject cannot be used.
        """
        if failure.kind == "input":
            raise BadInputError(failure.message)
        end = self._find_end(item, seen, failure)
        yield from end_uncompared(
            item,
            seen.tiers or list_possible(self._tiers, item.scenario),
            end.status,
            seconds=seen.seconds,
            message=tell_injury(seen.injury, end.message),
            detail=end.detail,
            findings=end.findings,
        )

    def _find_end(
        self, item: Planned, seen: Observation, failure: TaskFailedError
    ) -> _End:
        if never_meet(failure, item.spec):
            mismatch = self._find_mismatch(item, seen, failure)
            return _End(Status.FAIL, "", failure.detail, (mismatch,))
        # What a task was done explains whatever is raised then; wrong numbers are
        # there for the subject to cope with.
        injected = item.scenario.injected
        is_hurt = bool(seen.injury) and not (
            injected and all(fault.task is None for fault in injected)
        )
        if failure.kind != "subject" or is_hurt:
            return _End(Status.ERROR, str(failure), failure.detail)
        scenario, spec = _find_cluster(item, failure)
        control = self._controls.run(scenario, spec, seen.control)
        alike = control is not None and are_alike(control.failure, failure)
        # A program may do what its control does not: there the type must tell.
        device = spec.device or "cpu"
        compiled = tell_compiled(item.scenario.jit, device, seen.environment)
        is_known = alike or failure.exception == "NotImplementedError"
        if is_known and is_deliberate(failure.traceback):
            who = "" if spec == item.spec else f"'{spec}', which trains before: "
            words = f"{who}{failure.exception}: {failure.message}"
            return _End(Status.REFUSED, ". ".join(filter(None, (words, compiled))))
        origin: Literal["subject", "framework"] = "framework" if alike else "subject"
        finding = _make_raises(spec, failure, origin, compiled)
        is_of_step = failure.phase in ("first step", "step", *PHASES)
        if origin == "subject" and is_of_step and (even := self._try_even(item, seen)):
            told = (
                f"With even shards, as {even} makes them, it does not: a program that "
                "needs them is checked that way"
            )
            finding = replace(finding, explanation=f"{finding.explanation} {told}.")
        return _End(Status.FAIL, "", failure.detail, (finding,))

    def _try_even(self, item: Planned, seen: Observation) -> str:
        """The split by which nothing is raised, where the bench chose an uneven one.

        Returns:
            The option that asks for it; empty if there is none, or it raises as well.
        """
        shards = read_shards(seen.reference, seen.tiers)
        is_open = item.scenario.workload == PROGRAM and not item.scenario.split
        if not is_open or len({*shards}) < 2 or sum(shards) % len(shards):
            return ""
        even = (sum(shards) // len(shards),) * len(shards)
        scenario = replace(item.scenario, split=even)
        try:
            other = self._observe_again(replace(item, scenario=scenario))
        except BadInputError:  # The program minds the split in some other way.
            return ""
        if not isinstance(other, Observation):
            return ""
        other.clear_arrays()
        return tell_split(even) if other.failure is None else ""

    def _find_mismatch(
        self, item: Planned, seen: Observation, failure: TaskFailedError
    ) -> Finding:
        parts = read_parts(seen.folder, item.spec, seen.tiers)
        shards = read_shards(seen.reference, seen.tiers)
        finding = make_mismatch(failure, item.spec, parts, shards)
        overflows = bool(find_overflowing(parts, finding.step))
        control = self._controls.run(
            item.scenario, item.spec, seen.control, overflows=overflows
        )
        if control is None or control.failure is None:
            return finding
        alike = never_meet(control.failure, item.spec)
        return replace(finding, origin="framework" if alike else "subject")


def _find_cluster(
    item: Planned, failure: TaskFailedError
) -> tuple[Scenario, ClusterSpec]:
    """What failed, and on which cluster: it may be what trains before a restore."""
    scenario = item.scenario
    if failure.cluster in ("", str(item.spec)) or not scenario.restore_from:
        return scenario, item.spec
    return scenario.trained_before, ClusterSpec.parse(failure.cluster)


def _make_raises(
    spec: ClusterSpec,
    failure: TaskFailedError,
    origin: Literal["subject", "framework"],
    compiled: str,
) -> Finding:
    replicas = () if failure.replica is None else (failure.replica,)
    who = f"replica {failure.replica}" if replicas else f"task {failure.task}"
    step = failure.step or 0
    where, advice = "", "No line of the traceback is yours."
    if failure.frame:
        where = f", at {failure.frame}"
        is_foreign = is_installed(failure.frame)
        whose = "outside of the framework" if is_foreign else "of yours"
        advice = f"That is the innermost line {whose}."
    meant = [told for words, told in _MEANT.items() if words in failure.message]
    return Finding(
        code="raises",
        phase=failure.phase or "build",
        step=step,
        variable="",
        replicas=replicas,
        ratio=None,
        error=float("inf"),
        bound=0.0,
        explanation=(
            f"Step {step}, {failure.phase or 'build'}: {who} of '{spec}' raised "
            f"{failure.exception}: {failure.message}{where} - on one device the same "
            f"code runs (raises). {' '.join(filter(None, [advice, *meant, compiled]))}"
        ),
        confidence=1.0,
        origin=origin,
    )
