"""Trained state that a replica takes over from another one, which stepped by itself.

Where sums are missing each replica goes its own way, and a broadcast of the variables
of one of them makes all alike again. A replica then holds what the gradient of that one
gives, and not its own. With the right sum on all of them it would be the same: it
follows from what is wrong with the sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from distbench.compare.arrays.copies import are_same
from distbench.compare.comparison import Judged
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import SUMMED, TraceKey


def leave_out_taken_over(
    evidence: Evidence, chain: Chain, links: Sequence[Judged]
) -> list[Judged]:
    """Wrong links without what is, bit by bit, what another replica rightly made.

    Args:
        evidence: What was observed and expected.
        chain: All links: of the owner of such state the sums of the step are wrong.
        links: The wrong ones of one phase.
    """
    infos = evidence.observed.by_path
    summed = {
        (c.step, c.variable)
        for c in (link.comparison for link in chain.broken)
        if c.phase in SUMMED
    }
    right = {
        link.comparison.key
        for link in chain.held
        if link.comparison.relation == "follows"
    }

    def is_taken_over(link: Judged) -> bool:
        c = link.comparison
        info = infos.get(c.variable)
        return (
            info is not None
            and c.relation == "follows"
            and (c.step, info.owner) in summed
            and any(
                other in right and _are_copies(evidence, c.key, other)
                for other in map(c.key.at, range(evidence.observed.replicas))
            )
        )

    return [link for link in links if not is_taken_over(link)]


def _are_copies(evidence: Evidence, one: TraceKey, other: TraceKey) -> bool:
    seen, copied = evidence.observed.get(one), evidence.observed.get(other)
    return seen is not None and copied is not None and are_same(seen, copied)
