"""A step that moves no variable, and keeps in a slot what is due to it."""

from __future__ import annotations

from collections.abc import Mapping

from distbench.compare.comparison import Judged
from distbench.diagnose.clues.cases import is_left, is_still
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import Phase

Place = tuple[int, int, str]
"""Step, replica and variable."""


def move_held_back(
    evidence: Evidence, chain: Chain, by_phase: Mapping[Phase, list[Judged]]
) -> dict[Phase, list[Judged]]:
    """Wrong links by phase, with still variables in the place of slots that moved.

    A wrong slot is there before its variable, which may follow from it. But where one
    device leaves the slot as it was, it is the variable that lacks the step.

    Args:
        evidence: What was seen.
        chain: The links of all steps.
        by_phase: Those that are to be explained.
    """
    found = dict(by_phase)
    if evidence.tier == "free":
        return found
    still = {
        (link.comparison.step, link.comparison.replica, link.comparison.variable): link
        for link in chain.following
        if link.comparison.phase == "variable"
        and link.pair is not None
        and is_still(link.pair)
    }
    infos = evidence.observed.by_path
    moved: dict[Place, None] = {}
    left: dict[Place, None] = {}
    slots = []
    for link in found["slot"]:
        c, pair = link.comparison, link.pair
        place = (c.step, c.replica, infos[c.variable].of)
        if pair is not None and is_left(pair) and place in still:
            moved[place] = None
        else:
            left[place] = None
            slots.append(link)
    found["slot"] = slots
    lacking = [still[place] for place in moved if place not in left]
    found["variable"] = [*lacking, *found["variable"]]
    return found
