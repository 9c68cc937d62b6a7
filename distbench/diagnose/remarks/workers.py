"""Whose steps are wrong, where workers take them in turn."""

from __future__ import annotations

from collections.abc import Sequence

from distbench.details import Compared
from distbench.diagnose.names import name_steps
from distbench.evidence import Evidence


def note_worker(evidence: Evidence, compared: Sequence[Compared]) -> str:
    """Says that all wrong steps are those of one worker.

    Each step has to start from the reference's state, so that none is wrong by an
    earlier one, and a right one has to come after a wrong one: what goes wrong from
    some step on is no worker's.

    Args:
        evidence: What was seen.
        compared: What was held against what.
    """
    taken = evidence.observed.notes.get("taken_by")
    if evidence.tier != "bounded" or not isinstance(taken, list):
        return ""
    wrong = sorted({c.step for c in compared if c.wrong and 0 <= c.step < len(taken)})
    if len({taken[step] for step in wrong}) != 1:
        return ""
    worker = taken[wrong[0]]
    own = [step for step, by in enumerate(taken) if by == worker]
    goes_right_again = any(step not in wrong for step in range(wrong[0], len(taken)))
    if len(own) == len(taken) or not goes_right_again:
        return ""
    return (
        f"note: all that is wrong is in {name_steps(wrong)}, taken by worker {worker}, "
        f"which took {name_steps(own)}; the steps of other workers are right"
    )
