"""State that is not what a checkpoint held: what one restore left out is one loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from distbench.compare.comparison import Judged
from distbench.diagnose.names import tell_more
from distbench.diagnose.stages.links import Chain
from distbench.diagnose.stages.reporting import report_all
from distbench.evidence import Evidence
from distbench.trace import PHASES, Phase
from distbench.verdict import Finding

_CODE = "state-not-restored"
_WORDS = "it is not what was saved"


def explain_restored(
    evidence: Evidence, chain: Chain, start: Sequence[Judged]
) -> Iterator[Finding]:
    """A finding for all that the same replicas lost, slots before other state.

    Args:
        evidence: Of a run that went on from a checkpoint.
        chain: Its links.
        start: Those that are wrong before the first step.
    """
    losses: dict[frozenset[int], dict[Phase, list[Judged]]] = {}
    for phase in PHASES:
        links = [link for link in start if link.comparison.phase == phase]
        if links:
            replicas = frozenset(link.comparison.replica for link in links)
            losses.setdefault(replicas, {})[phase] = links
    for lost in losses.values():
        yield _tell_loss(evidence, chain, lost)


def _tell_loss(
    evidence: Evidence, chain: Chain, lost: dict[Phase, list[Judged]]
) -> Finding:
    """What was lost, by phase: the first one has the numbers, all have their names."""
    (first, links), *others = lost.items()
    rest = [
        report_all(evidence, chain, phase, found, _CODE, _WORDS)
        for phase, found in others
    ]
    words = _WORDS + "".join(f", nor is {_name(finding)}" for finding in rest)
    told = report_all(evidence, chain, first, links, _CODE, words)
    names = [name for finding in (told, *rest) for name in finding.variables]
    return replace(told, variables=tuple(dict.fromkeys(names)))


def _name(finding: Finding) -> str:
    more = tell_more(finding.variables)
    return f"{finding.phase} of '{finding.variable}'{more}"
