"""The causes of wrong links, as findings."""

from __future__ import annotations

from collections.abc import Sequence

from distbench.compare.comparison import Judged
from distbench.diagnose.causes.chosen import explain_cases
from distbench.diagnose.stages.links import Chain
from distbench.diagnose.stages.reporting import make_context, report_causes
from distbench.evidence import Evidence
from distbench.trace import Phase
from distbench.verdict import Finding


def explain_links(
    evidence: Evidence, chain: Chain, phase: Phase, links: Sequence[Judged]
) -> list[Finding]:
    """A finding for each cause of some wrong links of a phase."""
    if not links:
        return []
    context = make_context(evidence, chain, phase, links)
    return list(report_causes(context, explain_cases(context), links))
