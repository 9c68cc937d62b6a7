"""What is wrong with losses only because their step has assigned a wrong statistic."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from distbench.compare.comparison import Judged
from distbench.diagnose.stages.explained_links import explain_links
from distbench.diagnose.stages.held_values import is_as_held
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, INITIAL, WHOLE
from distbench.verdict import Finding


def leave_out_misled_losses(
    evidence: Evidence, chain: Chain, findings: Sequence[Finding]
) -> list[Finding]:
    """Without findings of losses and gradients that follow from state of their step.

    One device has the same, where it is assigned what the replicas hold of that state.
    A statistic is there before the loss then, and what is wrong with it says all. It
    was taken to follow from the loss, where no finding tells of it.

    Args:
        evidence: What was observed and expected.
        chain: Its links.
        findings: What was found in those that are broken.
    """
    held = evidence.fed.held
    if held is None:
        return list(findings)
    paths = set(cast(Sequence[str], held.notes["held"]))
    # Of a large model the first wrong numbers of each value are held alone.
    links = [
        link
        for link in chain.broken
        if link.comparison.phase in COMPUTED
        and link.comparison.step != INITIAL
        and link.pair is not None
    ]
    if not links or not all(_follows(evidence, link) for link in links):
        return list(findings)
    more: list[Finding] = []
    if not any(_is_about(finding, paths) for finding in findings):
        links = [
            link
            for link in chain.following
            if link.comparison.phase == "variable" and link.comparison.variable in paths
        ]
        more = explain_links(evidence, chain, "variable", links)
    told = [f.step for f in (*findings, *more) if _is_about(f, paths)]
    first = min(told, default=evidence.reference.steps)
    left = [f for f in findings if f.phase not in COMPUTED or f.step < first]
    return [*left, *more]


def _is_about(finding: Finding, paths: Collection[str]) -> bool:
    return finding.phase == "variable" and not {*finding.variables}.isdisjoint(paths)


def _follows(evidence: Evidence, link: Judged) -> bool:
    """Whether one device has the same from what the replicas hold."""
    held, pair = evidence.fed.held, link.pair
    is_whole = pair is not None and pair.key.replica == WHOLE
    return held is not None and is_whole and is_as_held(held, link)
