"""What is wrong before a step begins comes before all that the step computes.

What a loop does between two steps is seen in the state that the second one leaves,
after its loss and its gradients, which are made of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import OF_COPIES
from distbench.compare.comparison import Judged
from distbench.diagnose.causes.explain import is_vague
from distbench.diagnose.stages.links import Chain, sort_key
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, STATE, UPDATED
from distbench.trace.numbers import measure_errors, measure_finite
from distbench.verdict import Finding

_BEYOND = 1e-5
"""Share of a variable's norm that a hundred roundings of a float32 do not come to."""
_EARLY = " It is so before the step begins: look at before_step."


def break_at_begun(evidence: Evidence, chain: Chain) -> Chain:
    """Take state that a step began with otherwise for the place where the step breaks.

    It does not follow from the loss of its step. What the examples lead in such a step
    follows from it: one device's shards had another state.
    """
    apart = _list_apart(evidence)

    def is_begun(link: Judged) -> bool:
        c = link.comparison
        is_own = c.phase in UPDATED and c.relation not in OF_COPIES
        return is_own and c.variable in apart.get(c.step, ())

    begun = {link for link in (*chain.broken, *chain.following) if is_begun(link)}
    # Of what is updated along slots that a step began with, these tell first.
    slots = {j.comparison.step for j in begun if _is_slot(j)}
    moved = {
        j
        for j in begun.intersection(chain.following)
        if _is_slot(j) or j.comparison.step not in slots
    }
    steps = {link.comparison.step for link in begun}
    led = {
        link
        for link in set(chain.broken) - begun
        if link.comparison.relation == "led" and link.comparison.step in steps
    }
    broken = (link for link in (*chain.broken, *moved) if link not in led)
    return replace(
        chain,
        broken=tuple(sorted(broken, key=sort_key)),
        following=tuple(link for link in chain.following if link not in moved),
    )


def put_begun_first(
    evidence: Evidence, findings: Sequence[Finding]
) -> tuple[Finding, ...]:
    """Tell of each step first what it began with, if one device began otherwise.

    Args:
        evidence: Of a tier in which each step starts from one device's state.
        findings: In causal order of what was seen.

    Returns:
        Without what nothing explains of what such a step computes: it is made of that.
    """
    apart = _list_apart(evidence)
    early = [
        f
        for f in findings
        if f.phase in STATE and apart.get(f.step, frozenset()) & set(f.variables)
    ]
    names = {variable for finding in early for variable in finding.variables}
    steps = {step for step, paths in apart.items() if paths & names}
    told = [
        f
        for f in findings
        if f not in early
        and not (f.step in steps and f.phase in COMPUTED and is_vague(f))
    ]
    begun = [replace(f, explanation=f.explanation + _EARLY) for f in early]
    # Sorting is stable: of one step those come first that were put first.
    return tuple(sorted([*begun, *told], key=lambda f: (f.warning, f.step)))


def _is_slot(link: Judged) -> bool:
    return link.comparison.phase == "slot"


def _list_apart(evidence: Evidence) -> Mapping[int, frozenset[str]]:
    """By step, what was another when it began than on one device, beyond rounding."""
    if evidence.tier == "free":
        return {}
    ours, theirs = (
        trace.notes.get("begun") for trace in (evidence.reference, evidence.observed)
    )
    if not isinstance(ours, list) or not isinstance(theirs, list):
        return {}
    return {
        step: frozenset(p for p in due if p in seen and _differ(due[p], seen[p]))
        for step, (due, seen) in enumerate(zip(ours, theirs, strict=False))
    }


def _differ(due: Sequence[float], seen: Sequence[float]) -> bool:
    """Whether norm and product of two variables are not those of one."""
    ours, theirs = np.array(due, np.float64), np.array(seen, np.float64)
    size = measure_finite(np.array([due[0], seen[0]], np.float64))
    return bool(np.any(measure_errors(theirs, ours) > _BEYOND * size))
