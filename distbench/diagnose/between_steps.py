"""What is wrong before a step begins comes before all that the step computes.

What a loop does between two steps is seen in the state that the second one leaves,
after its loss and its gradients, which are made of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from distbench.diagnose.explain import is_vague
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, STATE
from distbench.verdict import Finding

_BEYOND = 1e-5
"""Share of a variable's norm that a hundred roundings of a float32 do not come to."""
_EARLY = " It is so before the step begins: look at before_step."


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
    steps = {finding.step for finding in early}
    told = [
        f
        for f in findings
        if f not in early
        and not (f.step in steps and f.phase in COMPUTED and is_vague(f))
    ]
    begun = [replace(f, explanation=f.explanation + _EARLY) for f in early]
    # Sorting is stable: of one step those come first that were put first.
    return tuple(sorted([*begun, *told], key=lambda f: f.step))


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
    size = max(abs(due[0]), abs(seen[0]))
    return any(abs(a - b) > _BEYOND * size for a, b in zip(due, seen, strict=True))
