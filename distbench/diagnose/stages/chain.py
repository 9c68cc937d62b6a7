"""Explains the broken links phase by phase, in causal order."""

from __future__ import annotations

from distbench.compare.arrays.pair import OF_COPIES
from distbench.compare.comparison import Judged
from distbench.compare.state.leading import find_counts
from distbench.diagnose.stages.between_steps import break_at_begun, put_begun_first
from distbench.diagnose.stages.counters import leave_out_counted
from distbench.diagnose.stages.explained_links import explain_links
from distbench.diagnose.stages.held_back import move_held_back
from distbench.diagnose.stages.in_turn import leave_out_led_losses
from distbench.diagnose.stages.kept_late import leave_out_keepers
from distbench.diagnose.stages.late_copies import tell_late_copies
from distbench.diagnose.stages.led import leave_out_led
from distbench.diagnose.stages.links import Chain
from distbench.diagnose.stages.misled import leave_out_misled_losses
from distbench.diagnose.stages.multiplied import move_multiplied
from distbench.diagnose.stages.of_losses import leave_out_of_losses
from distbench.diagnose.stages.overflowed import leave_out_decided
from distbench.diagnose.stages.own_copies import tell_own_copies
from distbench.diagnose.stages.reporting import make_context, report_all, report_causes
from distbench.diagnose.stages.root import explain_root
from distbench.diagnose.stages.state import (
    explain_apart,
    explain_start,
    leave_out_led_apart,
)
from distbench.diagnose.stages.taken_over import leave_out_taken_over
from distbench.diagnose.stages.totals import (
    explain_averages,
    explain_results,
    explain_totals,
    leave_out_following,
    leave_out_misled,
)
from distbench.diagnose.stages.unled import tell_unled
from distbench.evidence import Evidence
from distbench.trace import INITIAL, PHASES, SUMMED, Phase
from distbench.verdict import Finding

_SCALES = ("scale-error", "unexplained")
"""Codes of a sum that is not that of its addends, for no reason that is known."""


def explain_chain(evidence: Evidence, chain: Chain) -> tuple[Finding, ...]:
    """A finding for each cause, in causal order."""
    chain = break_at_begun(evidence, chain)
    findings = list(explain_start(evidence, chain))
    later = [j for j in chain.broken if j.comparison.step != INITIAL]
    by_phase: dict[Phase, list[Judged]] = {phase: [] for phase in PHASES}
    for link in later:
        if link.comparison.relation not in OF_COPIES:
            by_phase[link.comparison.phase].append(link)
    by_phase = move_multiplied(evidence, chain, by_phase)
    by_phase = move_held_back(evidence, chain, by_phase)
    root: Phase = "local_gradient"
    if not chain.shows("local_gradient"):
        root = "reduced_gradient"
    findings += explain_root(evidence, chain, by_phase["loss"], by_phase[root], root)
    for phase in PHASES[1:]:
        links = leave_out_keepers(evidence, findings, by_phase[phase])
        links = leave_out_counted(evidence, findings, links)
        links = leave_out_taken_over(evidence, chain, links)
        if phase != root:
            findings += explain_links(evidence, chain, phase, links)
    findings = _leave_out_told(_leave_out_scaled(later, findings))
    findings = _leave_out_collected(evidence, findings)
    findings = leave_out_decided(evidence, later, findings)
    findings = tell_own_copies(evidence, later, findings)
    findings = leave_out_led_losses(evidence, findings)
    findings = leave_out_led(evidence, later, findings)
    findings = leave_out_misled_losses(evidence, chain, findings)
    findings = leave_out_of_losses(evidence, later, findings)
    findings = tell_unled(evidence, chain, findings)
    findings = tell_late_copies(evidence, chain, findings)
    findings += explain_apart(evidence, leave_out_led_apart(evidence, chain, findings))
    for relation, explain in (
        ("average", explain_averages),
        ("total", explain_totals),
        ("result", explain_results),
    ):
        wrong = [j for j in later if j.comparison.relation == relation]
        if wrong:
            context = make_context(evidence, chain, "variable", wrong)
            context = leave_out_misled(context, _list_wrong_counts(evidence, later))
            told = list(report_causes(context, explain(context), wrong))
            findings = [*leave_out_following(findings, told), *told]
    if chain.broken and not findings:
        findings = [_tell_first(evidence, chain)]
    findings.sort(key=lambda f: (*find_place(f), f.code == "unexplained"))
    return put_begun_first(evidence, findings)


def _list_wrong_counts(evidence: Evidence, wrong: list[Judged]) -> dict[int, set[str]]:
    """By step, wrong numbers that neither gradients nor examples lead.

    What a metric counts leads nothing but what it shows.
    """
    shown = evidence.observed.metric_paths
    counts = find_counts(evidence) - shown
    found: dict[int, set[str]] = {}
    for link in wrong:
        if link.comparison.variable in counts:
            found.setdefault(link.comparison.step, set()).add(link.comparison.variable)
    return found


def _leave_out_scaled(wrong: list[Judged], findings: list[Finding]) -> list[Finding]:
    """Without what a sum is of its addends, where these are told to be wrong in it.

    How such are weighed has no measure of its own.
    """
    spoilt = {
        (link.comparison.step, link.comparison.variable)
        for link in wrong
        if link.comparison.phase == "local_gradient"
    }
    told = {
        (f.phase, f.step, v)
        for f in findings
        if f.phase in SUMMED and f.code not in _SCALES and not f.warning
        for v in f.variables
        if (f.step, v) in spoilt
    }
    return [
        f
        for f in findings
        if f.code not in _SCALES
        or any((f.phase, f.step, v) not in told for v in f.variables)
    ]


def _leave_out_told(findings: list[Finding]) -> list[Finding]:
    """Without what was told of the same state before the first step already.

    A schedule sets a learning rate at its start and anew in each step.
    """
    told = {(f.code, v) for f in findings if f.step == INITIAL for v in f.variables}
    return [
        f
        for f in findings
        if f.step == INITIAL or any((f.code, v) not in told for v in f.variables)
    ]


def _leave_out_collected(evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """Without gradients that are wrong as the state is in which a program keeps them.

    What an accumulator takes of one step it hands over in a later one.
    """
    kept = set(evidence.subject.kept)
    causes = [f for f in findings if f.phase == "variable" and kept >= set(f.variables)]
    return [
        finding
        for finding in findings
        if finding.phase not in SUMMED
        or not any(
            (cause.code, cause.replicas) == (finding.code, finding.replicas)
            and cause.step <= finding.step
            for cause in causes
        )
    ]


def _tell_first(evidence: Evidence, chain: Chain) -> Finding:
    """What is wrong first, where each cause was left to another: it is wrong still."""
    first = chain.broken[0].comparison
    links = [
        link
        for link in chain.broken
        if (link.comparison.phase, link.comparison.relation)
        == (first.phase, first.relation)
    ]
    words = "no known cause explains what is wrong"
    return report_all(evidence, chain, first.phase, links, "unexplained", words)


def find_place(finding: Finding) -> tuple[bool, int, int]:
    """Where a finding stands in causal order: warnings last, by step and phase."""
    phases = [str(phase) for phase in PHASES]
    return finding.warning, finding.step, phases.index(finding.phase)
