"""State that a step makes of its losses, and that is wrong as these are.

A schedule keeps the lowest loss so far, and a rate that it halves where the loss does
not fall. Both are wrong with a loss of which the cause is told already. So is all that
a step trains where it shows none of the gradients between its losses and that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from distbench.compare.comparison import Judged
from distbench.diagnose.causes.explain import is_vague
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, STATE
from distbench.verdict import Finding

_APART = (
    "missing-reduction",
    "variable-not-reduced",
    "replicas-diverged",
    "slot-not-synchronized",
    "slot-from-local-gradient",
)
"""Causes that make copies differ, which no loss does that all replicas have wrong."""


def is_of_losses(evidence: Evidence, finding: Finding) -> bool:
    """Whether a finding is about nothing but state that is made of losses."""
    made = cast(Sequence[str], evidence.observed.notes.get("of_losses", ()))
    return finding.phase == "variable" and set(made).issuperset(finding.variables)


def leave_out_of_losses(
    evidence: Evidence, broken: Sequence[Judged], findings: Sequence[Finding]
) -> list[Finding]:
    """Without state that is made of losses, in steps whose wrong loss has a cause.

    What is wrong with it besides shows once the losses are right.
    """
    wrong = {j.comparison.step for j in broken if j.comparison.phase == "loss"}
    told = {f.step for f in findings if f.phase in COMPUTED and not is_vague(f)}
    steps = wrong & told
    if not steps:
        return list(findings)
    is_hidden = not evidence.sees_gradients
    return [
        finding
        for finding in findings
        if finding.step not in steps
        or not (
            is_of_losses(evidence, finding)
            or (is_hidden and finding.phase in STATE and finding.code not in _APART)
        )
    ]
