"""The outcome of a check: status and findings of each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Literal

from distbench.details import Details
from distbench.errors import VerdictFailedError
from distbench.escape import escape_controls


class Status(str, Enum):
    """How a run ended; the order is that of weight over several runs."""

    FAIL = "fail"
    ERROR = "error"
    UNDECIDABLE = "undecidable"
    VACUOUS = "vacuous"
    PASS = "pass"
    REFUSED = "refused"
    SKIPPED = "skipped"

    def __str__(self) -> str:
        return self.value


_EXIT_CODES = {
    Status.PASS: 0,
    Status.FAIL: 1,
    Status.ERROR: 3,
    Status.UNDECIDABLE: 4,
    Status.VACUOUS: 4,
}


NOT_EXECUTED = frozenset({Status.REFUSED, Status.SKIPPED})
"""What says nothing of the subject."""


def combine_statuses(statuses: Iterable[Status]) -> Status:
    """The status of several runs: the heaviest of those that were executed."""
    executed = set(statuses) - NOT_EXECUTED
    return next((status for status in Status if status in executed), Status.VACUOUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One number that a finding spoils: what can be seen of it without any tap.

    Attributes:
        phase: `variable`, `slot`, `iterations` or `loss`.
        step: Number of the step after which it is wrong.
        variable: Path of the variable, `""` for the loss.
        index: Place of a variable among those that the subject lists, of a counter
            among the counters; -1 for the rest.
        element: Indices of the number in the variable's array.
        replica: A replica that has it wrong; -1 for what all have together.
        expected: The number on one device.
        observed: The number on that replica; NaN as well where it was never let come
            to it, since the wrong state before the first step was set right.
        bound: How far the two may lie apart.
        reduction: How the replicas' losses were put together, `sum` or `mean`; `""`
            for state.
    """

    phase: str
    step: int
    variable: str
    index: int
    element: tuple[int, ...]
    replica: int
    expected: float
    observed: float
    bound: float
    reduction: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One explained divergence.

    Attributes:
        code: One of the contract's codes (`distbench.codes.CODES`).
        phase: First phase from which the wrong outcome follows.
        step: Step number from 0; -1 for the state before the first step.
        variable: Path of the variable, `""` for the loss.
        replicas: Replicas that are wrong.
        ratio: Observed over expected, fitted over all wrong tensors that are named;
            None without one.
        error: Largest absolute error of these in that step.
        bound: Error that a correct run may have; 0 where it must be exact.
        explanation: One sentence: what happened and what to do.
        confidence: Share of the residual's norm that the cause explains, 0 to 1.
        origin: `framework` where a stock optimizer shows the same finding.
        warning: The run passes all the same.
        variables: All variables that show it, `variable` first.
        confirmed: Whether the cluster comes out right once the right value is put in
            at this phase; None where that was not tried.
        outcome: The first number that comes out wrong of it; None where no number of
            one device can be held against the cluster's.
    """

    code: str
    phase: str
    step: int
    variable: str
    replicas: tuple[int, ...]
    ratio: float | None
    error: float
    bound: float
    explanation: str
    confidence: float
    origin: Literal["subject", "framework"] = "subject"
    warning: bool = False
    variables: tuple[str, ...] = ()
    confirmed: bool | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The comparison that came nearest to its bound, or went farthest beyond it.

    Attributes:
        phase: The phase of what was compared.
        variable: Path of its variable, `""` for the loss.
        error_over_bound: Its error ÷ its bound; more than 1 is wrong.
    """

    phase: str
    variable: str
    error_over_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The outcome of one scenario in one tier.

    Attributes:
        scenario: The scenario's id.
        cluster: The resolved cluster spec.
        path: The aggregation path.
        tier: `exact`, `bounded` or `free`.
        status: How it ended.
        seconds: Wall time of the run, shared time split evenly among its tiers.
        checked: Number of comparisons made.
        worst: The comparison nearest to or farthest beyond its bound.
        findings: In causal order: the first is the one to fix.
        references: What each phase was compared with, by phase.
        message: Why a run was refused, skipped, undecidable, vacuous or in error.
        detail: Log tails and stacks that help to debug an error.
        workload: The workload; empty where the subject brings its own.
        setup: Everything else that the scenario says, and how many examples each
            replica got (`split`, and by step `resized` where a batch had another
            size), so that it can be run again.
        staleness: Of each step in flight, how many others ended while it ran: what it
            read is at most so many updates old. Empty for one step at a time.
        disk_bytes: What the traces of the run took on disk, while it was judged; shared
            ones are split evenly among its tiers.
        details: The numbers behind it, where a report asked for them; not compared.
        quarantined: Whether it failed as the quarantine list says: it is shown, and
            counts like one that passed.
    """

    scenario: str
    cluster: str
    path: str
    tier: str
    status: Status
    seconds: float = 0.0
    checked: int = 0
    worst: Worst | None = None
    findings: tuple[Finding, ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    detail: str = ""
    workload: str = ""
    setup: Mapping[str, Any] = field(default_factory=dict)
    staleness: tuple[int, ...] = ()
    quarantined: bool = False
    disk_bytes: int = 0
    details: Details | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Scenario and tier; a test has none."""
        return f"{self.scenario} [{self.tier}]" if self.tier else self.scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a check.

    Attributes:
        target: The subject; those of several checks with commas between them.
        runs: One for each scenario and tier.
        environment: Versions, devices and settings.
        seconds: Wall time of the check, with the start of its tasks and with what
            scenarios did at the same time; 0 where nobody measured it, as of several
            checks.
        begun: When it began, in UTC; None where nobody wrote it down.
        options: What was asked for, as `describe_options` has it; empty of several
            checks.
    """

    target: str
    runs: tuple[Run, ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    begun: datetime | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The status over all runs."""
        return combine_statuses(
            Status.PASS if run.quarantined else run.status for run in self.runs
        )

    @property
    def exit_code(self) -> int:
        """The command line's exit code."""
        return _EXIT_CODES[self.status]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all runs."""
        return tuple(finding for run in self.runs for finding in run.findings)

    def __bool__(self) -> bool:
        return self.status is Status.PASS

    def __repr__(self) -> str:
        """In a line, for a prompt or a failed assertion: all of it takes a page."""
        codes = ", ".join(dict.fromkeys(finding.code for finding in self.findings))
        found = f": {codes}" if codes else ""
        return escape_controls(f"<Verdict on {self.target}, {self.status}{found}>")

    def on(self, cluster: str) -> Verdict:
        """The verdict of one of its clusters, by the name that its runs have."""
        runs = tuple(run for run in self.runs if run.cluster == cluster)
        return replace(self, runs=runs)

    def raise_for_status(self) -> None:
        """Fail the caller's test.

        Raises:
            VerdictFailedError: The status is not `pass`; the message is the diagnosis.
        """
        __tracebackhide__ = True  # pytest then names the caller's line
        if self.status is not Status.PASS:
            raise VerdictFailedError(describe_verdict(self))


def merge_verdicts(verdicts: Iterable[Verdict]) -> Verdict:
    """The runs of several checks as one verdict, which began when the first did.

    Each target is named once.
    """
    parts = list(verdicts)
    environment: dict[str, Any] = {}
    for part in parts:
        environment.update(part.environment)
    return Verdict(
        target=", ".join(dict.fromkeys(part.target for part in parts)),
        runs=tuple(run for part in parts for run in part.runs),
        environment=environment,
        begun=find_begin(parts),
    )


def find_begin(verdicts: Iterable[Verdict]) -> datetime | None:
    """When the first of several checks began; None where none of them says so."""
    begun = [verdict.begun for verdict in verdicts if verdict.begun is not None]
    return min(begun, default=None)


def describe_verdict(verdict: Verdict) -> str:
    """The diagnosis as plain lines: one for each run that kept it from a pass.

    The first one has the codes: of a test that failed, pytest's summary shows no more.
    """
    wrong = [run for run in verdict.runs if run.status is Status.FAIL]
    found = [f.code for run in wrong for f in run.findings if not f.warning]
    codes = ", ".join(dict.fromkeys(found))
    lines = [f"{verdict.target}: {verdict.status}{f', {codes}' if codes else ''}"]
    quiet = {Status.PASS, *NOT_EXECUTED}
    if all(run.status in quiet for run in verdict.runs):
        quiet = {Status.PASS}  # else nothing would say why nothing was compared
    for run in verdict.runs:
        if run.status in quiet:
            continue
        lines.append(f"  {run.name}: {run.status} {run.message}".rstrip())
        lines += [f"    {finding.explanation}" for finding in run.findings]
        lines += [f"    | {line}" for line in run.detail.splitlines()]
    return escape_controls("\n".join(lines), keep="\n\t")
