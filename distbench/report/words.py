"""Numbers, findings and commands as plain words; pure functions of text."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.escape import escape_controls
from distbench.history.night import Row
from distbench.options import CheckOptions, find_usual_steps
from distbench.scenario import find_asked_split
from distbench.scenario.choices import WORKLOADS
from distbench.trace import PHASES
from distbench.verdict import Finding, Run, Status, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A finding, with every run that shows it."""

    finding: Finding
    runs: tuple[Run, ...]


_NUMBERLESS = {
    "raises": "an exception",
    "collective-mismatch": "a wait without an end",
}
"""Codes of what ended a run before it could compare a number."""


def collect_findings(verdict: Verdict) -> tuple[Sighting, ...]:
    """The findings of all runs, each kind once, in causal order for each subject.

    Every run has that order already, which is kept; of what several runs have next, the
    earliest comes first.
    """
    found: dict[tuple[str, str, str, str], tuple[Finding, set[int]]] = {}
    subjects: dict[str, list[int]] = {}
    for number, run in enumerate(verdict.runs):
        subjects.setdefault(name_target(verdict, run), []).append(number)
    for numbers in subjects.values():
        for finding, number in _merge({n: verdict.runs[n].findings for n in numbers}):
            key = (finding.code, finding.phase, finding.variable, finding.origin)
            found.setdefault(key, (finding, set()))[1].add(number)
    return tuple(
        Sighting(finding=finding, runs=tuple(verdict.runs[n] for n in sorted(shown)))
        for finding, shown in found.values()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Why runs were refused, skipped, undecided or in error.

    Attributes:
        status: What became of them.
        message: What is said of it in words, may be empty.
        detail: Tracebacks and stacks, may be empty.
        runs: Those that it is said of, in their order.
    """

    status: Status
    message: str
    detail: str
    runs: tuple[Run, ...]


def collect_remarks(verdict: Verdict) -> tuple[Remark, ...]:
    """What is said of runs beside their findings; shared reasons once."""
    reasons: dict[tuple[Status, str, str], list[Run]] = {}
    for run in verdict.runs:
        if run.message or run.detail:
            reasons.setdefault((run.status, run.message, run.detail), []).append(run)
    return tuple(
        Remark(status=status, message=message, detail=detail, runs=tuple(runs))
        for (status, message, detail), runs in reasons.items()
    )


def _merge(findings: Mapping[int, Sequence[Finding]]) -> Iterator[tuple[Finding, int]]:
    """The findings of numbered runs as one list; where two tie, the first run's."""
    left = {number: list(found) for number, found in findings.items() if found}
    while left:
        number = min(left, key=lambda n: _find_place(left[n][0]))
        yield left[number].pop(0), number
        left = {n: found for n, found in left.items() if found}


def _find_place(finding: Finding) -> tuple[bool, int, int]:
    phases = [str(phase) for phase in PHASES]
    place = phases.index(finding.phase) if finding.phase in phases else -1
    return finding.warning, finding.step, place


def format_number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.3g}"


def name_run(run: Run) -> str:
    """Scenario and tier."""
    return escape_controls(run.name)


def name_status(run: Run | Row) -> str:
    """The status, and whether the quarantine list knows it."""
    return f"{run.status} (known)" if run.quarantined else str(run.status)


def name_target(verdict: Verdict, run: Run) -> str:
    """The subject of one run: a verdict of several checks has more than one."""
    return str(run.setup.get("target", verdict.target))


def number_step(step: int) -> str:
    """`3`, or `start` for the state before the first step."""
    return "start" if step < 0 else str(step)


def name_step(step: int) -> str:
    """`step 3`, or `start` for the state before the first step."""
    return "start" if step < 0 else f"step {step}"


def name_place(finding: Finding) -> str:
    """Where a finding is: step, phase, variable, replicas, ratio."""
    parts = [name_step(finding.step), finding.phase]
    if finding.variable:
        more = len(set(finding.variables) - {finding.variable})
        parts.append(finding.variable + (f" and {more} more" if more else ""))
    if finding.replicas:
        word = "replica" if len(finding.replicas) == 1 else "replicas"
        parts.append(f"{word} {join_words(str(r) for r in finding.replicas)}")
    if finding.ratio is not None:
        parts.append(f"ratio {format_number(finding.ratio)}")
    return escape_controls(", ".join(part for part in parts if part))


def name_origin(finding: Finding) -> str:
    """How much of the error the cause explains, and whose it is."""
    text = f"{100 * finding.confidence:.0f} % of the error is explained by this cause"
    if finding.confidence == 0:
        text = "shown by how the values differ, which foretells no number"
    if finding.code in _NUMBERLESS:
        text = f"{_NUMBERLESS[finding.code]}, and no number to explain"
    if finding.code == "unexplained":
        text = "no known cause foretells the numbers of the error"
    if finding.confirmed is not None:
        text += (
            "; confirmed: with the right gradient put in its place the outcome is right"
            if finding.confirmed
            else "; with the right gradient put in its place something else is wrong"
        )
    if finding.origin == "framework":
        text += "; a stock optimizer shows it too: the framework's, not the subject's"
    return text


def join_words(words: Iterable[str], limit: int = 6) -> str:
    """`0, 1 and 2`; beyond the limit `0, 1, 2 and 7 more`."""
    items = list(words)
    if len(items) > limit:
        items = [*items[: limit - 1], f"{len(items) - limit + 1} more"]
    return " and ".join([", ".join(items[:-1]), items[-1]] if items[1:] else items)


def _show_number(number: object) -> str:
    """With all of its digits, as a command takes it: `2`, `9.5367431640625e-07`."""
    return str(number).removesuffix(".0")


_OPTIONS: Mapping[str, Callable[[Any], str]] = {
    "steps": str,
    "dtype": str,
    "seed": str,
    "examples": str,
    "loss_weight": _show_number,
    "keras": str,
    "engine": str,
    "split": lambda split: ",".join(map(str, split)),
    "restore_from": str,
    "restore_after": str,
    "in_flight": str,
    "partitioner": str,
    "restore_partitioner": str,
    "jit": lambda jit: "on" if jit else "off",
    "timeout_s": _show_number,
}
"""Options of a check that belong to a command, if they are not the defaults."""


def format_command(target: str, run: Run, options: CheckOptions) -> str:
    """The shell command that runs one scenario of a check again.

    Args:
        target: That of the verdict; a run of several checks names its own.
        run: What is to be run again.
        options: Those of the check, where the run does not say what it was made with.
    """
    target = str(run.setup.get("target", target))
    test = run.setup.get("test")
    if test and ":" not in target:  # what a test made has no address of its own
        return escape_controls(shlex.join(["pytest", str(test)]))
    words: list[str] = ["distbench", "check", target, "-c", run.cluster]
    defaults = CheckOptions()
    usual: dict[str, Any] = {"timeout_s": defaults.deadline_s}
    with suppress(BadInputError):  # a report may be of anything
        in_flight = run.setup.get("in_flight", options.in_flight)
        spec = ClusterSpec.parse(run.cluster)
        usual["steps"] = find_usual_steps(spec, int(str(in_flight)))
    if run.path != "default":
        words += ["--path", run.path]
    if run.tier:
        words += ["--tier", run.tier]
    if run.workload in WORKLOADS:
        words += ["--workload", run.workload]
    for fault in run.setup.get("faults", options.faults):
        words += ["--fault", str(fault)]
    for name, show in _OPTIONS.items():
        value = run.setup.get(name, getattr(options, name))
        if name == "split":
            asked = find_asked_split(run.workload, tuple(run.setup.get(name, ())))
            value = options.split or (asked if test else ())
        if value not in ("", None, usual.get(name, getattr(defaults, name))):
            option = name.removesuffix("_s").replace("_", "-")
            words += [f"--{option}", show(value)]
    return escape_controls(shlex.join(words))


def summarise(verdict: Verdict) -> str:
    """One line: the status and how many runs ended how."""
    return f"{verdict.status}: {count_runs(verdict)}"


def count_runs(verdict: Verdict) -> str:
    """How many runs ended how, and how long that took."""
    counts: dict[str, int] = {}
    for run in verdict.runs:
        counts[name_status(run)] = counts.get(name_status(run), 0) + 1
    parts = ", ".join(f"{number} {status}" for status, number in counts.items())
    text = parts or "no runs"
    if verdict.seconds > 0:
        text += f" in {verdict.seconds:.1f} s"
    else:
        # Of several checks, which may have run at the same time.
        text += f", {sum(run.seconds for run in verdict.runs):.1f} s of runs"
    # Of a small model nobody needs to know.
    most = max((run.disk_bytes for run in verdict.runs), default=0) / 1e9
    return f"{text}; traces took up to {most:.1f} GB a run" if most >= 0.1 else text


def describe_environment(verdict: Verdict) -> str:
    """Versions and devices in one line."""
    known = verdict.environment
    parts = [
        f"{label} {known[key]}"
        for key, label in (
            ("tensorflow", "TensorFlow"),
            ("tf_keras", "tf_keras"),
            ("keras", "Keras"),
            ("python", "Python"),
        )
        if known.get(key)
    ]
    devices = known.get("devices")
    if isinstance(devices, Sequence) and not isinstance(devices, str) and devices:
        parts.append(join_words(str(device) for device in devices))
    return escape_controls(", ".join(parts))
