"""Was a fault found, and was it called by its name? Nothing is run here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distbench.faults import Fault
from distbench.unusual import Unusual
from distbench.verdict import Finding, Run, Status, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A fault on a cluster; right only if it is so in every tier that was run.

    Attributes:
        fault: Name of the fault.
        cluster: The cluster spec.
        status: Of all runs together.
        detected: Whether the runs do not simply pass.
        code: Whether the first finding has the code.
        phase: Whether it has the phase.
        variable: Whether it names just the variables.
        replicas: Whether it names just the replicas, where they are known.
        found: The first finding of each tier in words.
        explanation: What the first finding says.
        seconds: Wall time.
    """

    fault: str
    cluster: str
    status: Status
    detected: bool
    code: bool
    phase: bool
    variable: bool
    replicas: bool
    found: tuple[str, ...]
    explanation: str = ""
    seconds: float = 0.0

    @property
    def skipped(self) -> bool:
        """Whether the machine cannot run it."""
        return self.status is Status.SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """An unusual program on a cluster.

    Attributes:
        program: Its name.
        cluster: The cluster spec.
        status: Of all runs together.
        found: The first finding or message of each run that does not pass.
        seconds: Wall time.
    """

    program: str
    cluster: str
    status: Status
    found: tuple[str, ...] = ()
    seconds: float = 0.0


TARGETS = {"detected": 1.0, "code": 0.95, "phase": 0.98, "variable": 0.98}
"""Share of the cells that must be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All cells of a selftest."""

    faults: tuple[Cell, ...]
    unusual: tuple[Passed, ...]

    def measure_shares(self) -> dict[str, float]:
        """Share of the cells that are right, by column; 1 where there are none."""
        cells = [cell for cell in self.faults if not cell.skipped]
        names = (*TARGETS, "replicas")
        return {
            name: sum(getattr(cell, name) for cell in cells) / len(cells)
            if cells
            else 1.0
            for name in names
        }

    @property
    def false_alarms(self) -> tuple[Passed, ...]:
        """Correct programs that did not pass."""
        fine = (Status.PASS, Status.SKIPPED)
        return tuple(one for one in self.unusual if one.status not in fine)

    @property
    def ok(self) -> bool:
        """Whether something was run and the targets are reached."""
        shares = self.measure_shares()
        ran = any(not c.skipped for c in self.faults) or any(
            p.status is not Status.SKIPPED for p in self.unusual
        )
        reached = all(shares[name] >= least for name, least in TARGETS.items())
        return ran and reached and not self.false_alarms


def score_fault(
    fault: Fault, cluster: str, verdict: Verdict, seconds: float = 0.0
) -> Cell:
    """Hold a verdict against what was expected."""
    runs, status = _judge_runs(verdict)
    firsts = [(run, run.findings[0] if run.findings else None) for run in runs]

    def all_right(is_right: Callable[[Finding], bool]) -> bool:
        return bool(firsts) and all(
            first is not None and is_right(first) for _, first in firsts
        )

    wanted = Status.PASS if fault.warning else Status.FAIL
    replicas = fault.list_replicas(cluster)
    return Cell(
        fault=fault.name,
        cluster=cluster,
        status=status,
        detected=bool(runs)
        and all(run.status is wanted for run in runs)
        and all_right(lambda finding: finding.warning == fault.warning),
        code=all_right(lambda finding: finding.code == fault.code),
        phase=all_right(lambda finding: finding.phase == fault.phase),
        variable=all_right(lambda finding: _names_variables(fault, finding)),
        replicas=all_right(
            lambda finding: replicas is None or finding.replicas == replicas
        ),
        found=tuple(_describe(run, first) for run, first in firsts),
        explanation=next((f.explanation for _, f in firsts if f is not None), ""),
        seconds=seconds,
    )


def score_program(
    program: Unusual, cluster: str, verdict: Verdict, seconds: float = 0.0
) -> Passed:
    """Whether a correct program passed."""
    runs, status = _judge_runs(verdict)
    return Passed(
        program=program.name,
        cluster=cluster,
        status=status,
        found=_list_alarms(runs),
        seconds=seconds,
    )


def _judge_runs(verdict: Verdict) -> tuple[list[Run], Status]:
    """The runs that the machine can have, and their status together.

    Each is meant to be judged: what is refused was not.
    """
    runs = [run for run in verdict.runs if run.status is not Status.SKIPPED]
    if any(run.status is Status.REFUSED for run in runs):
        return runs, Status.REFUSED
    return runs, verdict.status if runs else Status.SKIPPED


def _list_alarms(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(
        f"{run.tier}: {_describe(run, run.findings[0])}; {run.findings[0].explanation}"
        if run.findings
        else f"{run.tier}: {run.status}: {run.message}"
        for run in runs
        if run.status is not Status.PASS or run.findings
    )


def _names_variables(fault: Fault, finding: Finding) -> bool:
    if fault.variables == ("",):
        return finding.variable == ""
    named = set(finding.variables) or {finding.variable}
    return named == set(fault.variables)


def _describe(run: Run, finding: Finding | None) -> str:
    if finding is None:
        return f"{run.tier}: {run.status}" + (
            f" ({run.message})" if run.message else ""
        )
    names = ", ".join(finding.variables or (finding.variable,))
    replicas = ", ".join(map(str, finding.replicas))
    where = f"{finding.phase} of '{names}'" if names else finding.phase
    return f"{run.tier}: {finding.code}, {where}, replicas {replicas}"
