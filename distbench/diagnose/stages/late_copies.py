"""Copies of variables that are too old, in place of what is computed from them.

A loop that copies the variables now and then leaves a copy that is wrong as the step
begins; the loss, and the gradients, are only where that shows first.
"""

from __future__ import annotations

from collections.abc import Iterator

from distbench.diagnose.causes.explain import is_vague
from distbench.diagnose.hypotheses.late import LATE_READ, explain_by_late_copy
from distbench.diagnose.stages.explained_links import explain_links
from distbench.diagnose.stages.links import Chain
from distbench.diagnose.stages.reporting import make_context
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, INITIAL, STATE, UPDATED
from distbench.verdict import Finding


def tell_late_copies(
    evidence: Evidence, chain: Chain, findings: list[Finding]
) -> list[Finding]:
    """Put the copies that are too old in place of what was computed from the variables.

    Where they were not told as wrong by themselves, for they came after a wrong loss,
    they are looked for. What is computed for another reason is told as well.
    """
    late = [f for f in findings if f.phase in COMPUTED and (_is_late(f) or is_vague(f))]
    copies = [f for f in findings if f.phase in STATE and _is_late(f)]
    found = list(_explain_copies(evidence, chain)) if late and not copies else []
    steps = {f.step for f in (*copies, *found)}

    def is_led(finding: Finding) -> bool:
        goes_on = evidence.tier == "free" or _is_late(finding)
        return finding.step in steps or (goes_on and finding.step > min(steps))

    led = [f for f in late if is_led(f)] if steps else []
    return [f for f in [*findings, *found] if f not in led]


def _is_late(finding: Finding) -> bool:
    return finding.code == LATE_READ


def _explain_copies(evidence: Evidence, chain: Chain) -> Iterator[Finding]:
    """Copies among what is wrong after a wrong loss."""
    for phase in UPDATED:
        links = [
            j
            for j in chain.following
            if j.comparison.phase == phase
            and j.comparison.step != INITIAL
            and j.pair is not None
        ]
        context = make_context(evidence, chain, phase, links)
        for hypothesis in explain_by_late_copy(context):
            old = [link for n, link in enumerate(links) if n in hypothesis.predicted]
            yield from explain_links(evidence, chain, phase, old)
