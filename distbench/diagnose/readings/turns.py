"""Replicas that share their variables and take a step each, one after the other.

Where nobody sums, the first replica's update changes what the others compute from. The
sum that is missing is the fault; what follows from it is told apart here.
"""

from __future__ import annotations

from collections.abc import Sequence

from distbench.compare.arrays.copies import are_same
from distbench.compare.comparison import Judged
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, STATE, Trace


def leave_out_turns(judged: Sequence[Judged], evidence: Evidence) -> tuple[Judged, ...]:
    """Without the wrong comparisons that follow from updates in turn.

    That the replicas did take turns is proved for each step: on one device the update
    was fed with the gradient of one replica after the other, and the cluster's state
    has to be what this leaves, in all bits. A sum that all replicas hand over is no
    step of their own: then the update was applied several times.
    """
    if evidence.fed.turns is None:
        return tuple(judged)
    apart = {
        j.comparison.step
        for j in judged
        if j.comparison.wrong
        and (j.comparison.phase, j.comparison.relation)
        == ("reduced_gradient", "follows")
    }
    taken = {s for s in apart if _took_turns(evidence.fed.turns, evidence.observed, s)}
    return tuple(j for j in judged if not (_follows(j) and j.comparison.step in taken))


def _took_turns(turns: Trace, observed: Trace, step: int) -> bool:
    left = [item for phase in STATE for item in turns.select(step=step, phase=phase)]
    seen = [(value, observed.get(key)) for key, value in left]
    return bool(seen) and all(
        other is not None and are_same(value, other) for value, other in seen
    )


def _follows(judged: Judged) -> bool:
    c = judged.comparison
    return c.wrong and (c.phase in STATE or c.phase in COMPUTED)
