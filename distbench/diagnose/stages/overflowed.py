"""What goes by an overflow on some replicas alone, beside what that overflow spoils.

Where each replica asks its own gradients alone, a loss scale and a count of good steps
go another way than on one device, and so may the loss that is returned. That is no
mistake of its own: they are right wherever nothing overflows.
"""

from __future__ import annotations

from collections.abc import Sequence

from distbench.compare.comparison import Judged
from distbench.compare.state.leading import is_number
from distbench.diagnose.stages.counters import list_counted
from distbench.evidence import Evidence
from distbench.verdict import Finding


def leave_out_decided(
    evidence: Evidence, broken: Sequence[Judged], findings: Sequence[Finding]
) -> list[Finding]:
    """Without numbers that are wrong only in steps of which an overflow is told.

    A free run goes on from wrong ones, so there the first step alone tells.
    """
    told = [f for f in findings if f.code == "nonfinite"]

    def is_right_elsewhere(finding: Finding) -> bool:
        return evidence.tier == "free" or all(
            evidence.observed.find_overflowing(j.comparison.step)
            for j in broken
            if j.comparison.phase == finding.phase
            and j.comparison.variable in finding.variables
        )

    return [
        f
        for f in findings
        if not any(is_decided_so(f, first, evidence) for first in told)
        or not is_right_elsewhere(f)
    ]


def is_decided_so(found: Finding, first: Finding, evidence: Evidence) -> bool:
    """Whether a finding names nothing but numbers that go by an overflow.

    Args:
        found: What may follow.
        first: What is told of the step.
        evidence: What both were found in.
    """
    if first.code != "nonfinite" or found.code == "nonfinite":
        return False
    observed = evidence.observed
    if found.step != first.step or not observed.find_overflowing(found.step):
        return False
    if found.phase == "loss":
        return found.code == "loss-misreported"  # its gradients are right
    infos = observed.by_path
    return all(
        path in infos
        and is_number(infos[path])
        and not infos[path].trainable
        and observed.find_overflowing(found.step, list_counted(evidence, path))
        for path in found.variables
    )
