"""Wrong gradients that a rule undoes, after they were summed as wrong as they were.

A rule that takes signs leaves nothing of a factor of the loss. An average undoes it
before, and then the sum is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distbench.compare.comparison import Judged
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import WHOLE
from distbench.trace.numbers import densify, measure_norm


def list_passed_on(
    evidence: Evidence, chain: Chain, losses: Sequence[Judged]
) -> tuple[Judged, ...]:
    """The local gradients that are wrong where losses are, and in their sums as well.

    Args:
        evidence: What was observed.
        chain: Its links: these are among those that a later one undoes.
        losses: The wrong losses.
    """
    steps = {link.comparison.step for link in losses}
    return tuple(
        link
        for link in chain.forgiven
        if link.comparison.phase == "local_gradient"
        and link.comparison.step in steps
        and _is_passed_on(evidence, link)
    )


def _is_passed_on(evidence: Evidence, link: Judged) -> bool:
    """Whether the sum is at least half as wrong as the gradient was."""
    shown = link.comparison
    key = replace(shown.key.at(WHOLE), phase="reduced_gradient")
    replica = max(shown.key.replica, 0)  # all replicas have the same sum
    seen, due = evidence.observed.get(key.at(replica)), evidence.reference.get(key)
    if seen is None or due is None or link.pair is None:
        return False
    pair = link.pair
    total = densify(due)
    wrong = measure_norm(pair.observed - pair.expected)
    left = measure_norm(densify(seen) - total)
    # Not divided by their sizes: of a step that is left out, a sum of 0 is due.
    wrong *= measure_norm(total)
    return bool(left > 0 and left * measure_norm(pair.expected) >= wrong / 2)
