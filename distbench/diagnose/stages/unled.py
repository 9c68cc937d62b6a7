"""State that is wrong before the sums of its step, in place of wrong sums made of it.

A rule may keep something at the start of a step and use it in the same step: a count, a
number that a schedule sets, or a statistic of each replica's own gradients that the sum
is then divided by. The sum is recorded first, and wrong in a way that no cause of wrong
sums has; what is wrong with the state says what happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from distbench.compare.arrays.pair import OF_COPIES
from distbench.compare.comparison import Judged
from distbench.compare.state.leading import find_unled, is_unmoved
from distbench.diagnose.causes.explain import is_vague
from distbench.diagnose.stages.explained_links import explain_links
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import GRADIENTS, INITIAL, SUMMED, Phase
from distbench.verdict import Finding

_BEFORE_STATE = ("loss", *GRADIENTS)
_OF_OWN = ("slot-from-local-gradient", "statistics-not-synchronized")
"""What is said of state that is made of the gradients of single replicas."""


def tell_unled(
    evidence: Evidence, chain: Chain, findings: list[Finding]
) -> list[Finding]:
    """Put such state in the place of what says no more than that a sum is wrong.

    It does not follow from the loss or the sums of its step, so it is wrong by itself;
    and these may be made of it, where it changes at the start of the step.
    """
    if evidence.tier == "free":
        return findings
    unled = _tell_led_by_none(evidence, chain, findings)
    return _tell_own(evidence, chain, findings) if unled is None else unled


def _tell_led_by_none(
    evidence: Evidence, chain: Chain, findings: list[Finding]
) -> list[Finding] | None:
    """State that neither examples nor gradients lead, whatever is known of it.

    None where no finding is in its place.
    """
    vague = [f for f in findings if f.phase in _BEFORE_STATE and is_vague(f)]
    if not vague:
        return None
    unled = find_unled(evidence)
    told = {j.comparison.key for j in chain.broken}
    wrong = [
        j
        for j in (*chain.broken, *chain.following)
        if j.comparison.variable in unled
        and j.comparison.phase == "variable"
        and j.pair is not None
    ]
    steps = {j.comparison.step for j in wrong}
    kept = [f for f in findings if f not in vague or f.step not in steps]
    if len(kept) == len(findings):
        return None
    links = [j for j in wrong if j.comparison.key not in told]
    return [*kept, *explain_links(evidence, chain, "variable", links)]


def _tell_own(
    evidence: Evidence, chain: Chain, findings: list[Finding]
) -> list[Finding]:
    """State that replicas make of their own gradients, if that is known.

    A number that divides all sums of a step gives them a factor, which is a cause of
    nothing as long as nobody knows where it comes from.
    """
    open_ones = [
        f
        for f in findings
        if f.phase in SUMMED and (is_vague(f) or f.code == "scale-error")
    ]
    if not open_ones:
        return findings
    for phase in ("slot", "variable"):
        links = list(_list_unmoved(evidence, chain, phase))
        told = explain_links(evidence, chain, phase, links)
        steps = {f.step for f in told}
        is_own = all(f.code in _OF_OWN and not is_vague(f) for f in told)
        left = [f for f in findings if f not in open_ones or f.step not in steps]
        if is_own and len(left) < len(findings):
            return [*left, *told]
    return findings


def _list_unmoved(evidence: Evidence, chain: Chain, phase: Phase) -> Iterator[Judged]:
    """Wrong state of a phase that the sums of its step leave as it is.

    Of the model that which is made of gradients: a moving statistic of the batch is
    there before the loss, and what is wrong with a sum alone is not made of it.
    """
    made = evidence.observed.notes.get("of_derivatives", ())
    of_gradients = {*evidence.subject.kept, *cast(Sequence[str], made)}
    infos = evidence.observed.by_path
    for link in chain.following:
        c = link.comparison
        if c.phase != phase or c.relation in OF_COPIES or c.step == INITIAL:
            continue
        is_model = infos[c.variable].role == "variable"
        if is_model and c.variable not in of_gradients:
            continue
        if link.pair is not None and is_unmoved(evidence, c.key):
            yield link
