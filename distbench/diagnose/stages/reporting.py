"""Wrong links as a hypothesis sees them, and their causes as findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distbench.compare.arrays.pair import OF_COPIES
from distbench.compare.comparison import Judged
from distbench.diagnose.causes.explain import Explained, explain_all, make_finding
from distbench.diagnose.clues.context import Context
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import Phase
from distbench.verdict import Finding


def make_context(
    evidence: Evidence,
    chain: Chain,
    phase: Phase,
    broken: Sequence[Judged],
    *,
    root: bool = False,
) -> Context:
    """What the hypotheses of a phase may look at."""
    return Context(
        evidence=evidence,
        phase=phase,
        cases=tuple(j.pair for j in broken if j.pair is not None),
        right=frozenset(
            j.comparison.key
            for j in chain.held
            if j.comparison.phase == phase and j.comparison.relation not in OF_COPIES
        ),
        root=root,
        led=any(j.comparison.relation == "led" for j in chain.broken),
        wrong=chain.wrong,
    )


def report_causes(
    context: Context, causes: Sequence[Explained], links: Sequence[Judged]
) -> Iterator[Finding]:
    """A finding for each cause of some wrong links."""
    by_case: dict[int, Judged] = {id(link.pair): link for link in links}
    for explained in causes:
        comparisons = [
            by_case[id(case)].comparison
            for case in explained.cases
            if id(case) in by_case
        ]
        yield make_finding(context, explained, comparisons)


def report_all(
    evidence: Evidence,
    chain: Chain,
    phase: Phase,
    links: Sequence[Judged],
    code: str,
    detail: str,
) -> Finding:
    """The finding of wrong links whose cause is plain from where they are."""
    context = make_context(evidence, chain, phase, links)
    [finding] = report_causes(context, (explain_all(context, code, detail),), links)
    return finding
