"""Steps that are scheduled one by one, and of which some count not at all, or twice.

Under parameter servers a whole step is one worker's. What a worker decides by itself,
such as to try a step again, is wrong in its steps alone, and not in those around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.pair import OF_COPIES
from distbench.compare.state.leading import find_counts, is_trained
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.keepers import find_held
from distbench.trace import UPDATED, WHOLE, Trace, TraceKey, VariableInfo
from distbench.trace.numbers import Array, densify

_MOST = 8
"""So often a step is taken to be applied."""
_ADVICE = (
    "Nothing else was written meanwhile: look for what a worker decides by itself, as "
    "by a count of its own steps, a condition or a second try."
)


def explain_by_lost_step(context: Context) -> Iterator[Hypothesis]:
    """A step that leaves all that trains as it was, or a slot, where others do not.

    On one device every step moves something: what takes turns there has other turns.
    """
    if context.phase not in UPDATED or not context.evidence.subject.scheduled:
        return
    lost = context.work_out("lost steps", lambda: _find_lost(context))
    predicted: dict[int, Array] = {}
    for path, cases in context.group_cases(lambda case: case.key.variable).items():
        info = context.infos.get(path)
        is_slot = info is not None and info.role == "slot"
        still = _find_unmoved(context, info) if info is not None and is_slot else lost
        predicted |= {n: find_base(case) for n, case in cases if case.key.step in still}
    if predicted:
        yield Hypothesis(
            code="lost-update",
            predicted=predicted,
            detail="it has nothing of the step's update, while it has those of others",
            advice=_ADVICE,
        )


def explain_by_lost_count(context: Context) -> Iterator[Hypothesis]:
    """A count of steps that some steps leave as it is, and others move on rightly.

    On one device each step moves it by as much; what begins anew at some number may
    stay as it is by that. What else is wrong in such a step is made of it.
    """
    if context.phase != "variable" or not context.evidence.subject.scheduled:
        return
    paths = find_counts(context.evidence) & context.infos.keys()
    predicted: dict[int, Array] = {}
    for path, cases in context.group_cases(lambda case: case.key.variable).items():
        if path not in paths:
            continue
        steps = _list_wrong(context, path) | {case.key.step for _, case in cases}
        if steps <= _find_still(context, context.infos[path]):
            predicted |= {number: find_base(case) for number, case in cases}
    if predicted:
        yield Hypothesis(
            code="lost-update",
            predicted=predicted,
            detail="it stays as it is in the step, and those of others move it on",
            advice=_ADVICE,
        )


def explain_by_extra_step(context: Context) -> Iterator[Hypothesis]:
    """Steps that are a whole multiple of what they should be, and right ones after.

    Of a rule that keeps no state a rate that is wrong in these steps alone is the same;
    one that follows a count is mostly wrong from some step on.
    """
    if context.phase != "variable" or not context.evidence.subject.scheduled:
        return
    names = {case.key.variable for _, case in context.list_cases()}
    if any(info.of in names for info in context.infos.values() if info.role == "slot"):
        return
    predicted: dict[int, Array] = {}
    counts: dict[int, int] = {}
    for step, cases in context.list_steps().items():
        for count in range(2, _MOST + 1):
            found = {
                number: case.base + count * (case.expected - case.base)
                for number, case in cases
            }
            if all(context.matches(case, found[number]) for number, case in cases):
                predicted |= found
                counts[step] = count
                break
    if not predicted or not _is_right_after(context, min(counts)):
        return
    same = len(set(counts.values())) == 1
    times = f"{min(counts.values())} times" if same else "several times"
    yield Hypothesis(
        code="extra-update",
        predicted=predicted,
        detail=f"it has the step's update {times}, and those of others once, or the "
        "learning rate is as much larger in this step",
        ratio=float(counts[min(counts)]),
        advice=_ADVICE,
    )


def _find_lost(context: Context) -> set[int]:
    """Steps that move nothing on the cluster; none where one device has such, too."""
    return _list_still(context, partial(_moves, context))


def _find_unmoved(context: Context, info: VariableInfo) -> set[int]:
    """The same of a single slot, and what is lost with all that trains."""
    lost = context.work_out("lost steps", lambda: _find_lost(context))
    return lost | _list_still(context, partial(_is_moved, context, info))


def _find_still(context: Context, info: VariableInfo) -> set[int]:
    """The same of one variable, which each step of one device moves by as much."""
    evidence, moved = context.evidence, []
    for step in range(evidence.reference.steps):
        key = TraceKey(step=step, phase="variable", variable=info.path)
        before, after = find_held(evidence, info, key), evidence.reference.get(key)
        if before is None or after is None:
            return set()
        moved.append(densify(after) - before)
    if not all(np.array_equal(change, moved[0]) for change in moved):
        return set()
    return _list_still(context, partial(_is_moved, context, info))


def _list_still(context: Context, moves: Callable[[Trace, int, int], bool]) -> set[int]:
    """Steps of the cluster that do not move what all of one device move, and others do.

    Args:
        context: What was seen.
        moves: Whether a step moves it in a trace, on a replica.
    """
    evidence = context.evidence
    steps = range(evidence.reference.steps)
    if not all(moves(evidence.reference, step, WHOLE) for step in steps):
        return set()
    lost = {step for step in steps if not moves(evidence.observed, step, 0)}
    return lost if len(lost) < len(steps) else set()


def _is_right_after(context: Context, step: int) -> bool:
    """Whether a later step moves what trains, and is right."""
    wrong = _list_wrong(context) | {case.key.step for case in context.cases}
    right = {key.step for key in context.right if key.step > step} - wrong
    return any(_moves(context, context.evidence.observed, s, 0) for s in right)


def _list_wrong(context: Context, path: str = "") -> set[int]:
    """Steps in which a value of the phase is wrong, of a variable or of any."""
    wrong = [link.comparison for link in context.wrong]
    return {
        c.step
        for c in wrong
        if c.phase == context.phase
        and c.relation not in OF_COPIES
        and path in ("", c.variable)
    }


def _moves(context: Context, trace: Trace, step: int, replica: int) -> bool:
    """Whether a step changes any variable that follows from gradients."""
    return any(
        _is_moved(context, info, trace, step, replica)
        for info in context.infos.values()
        if info.role == "variable" and is_trained(context.evidence, info.path)
    )


def _is_moved(
    context: Context, info: VariableInfo, trace: Trace, step: int, replica: int
) -> bool:
    """Whether a step is known to change a variable."""
    key = TraceKey(step=step, phase="variable", variable=info.path, replica=replica)
    if info.role == "slot":
        key = replace(key, phase="slot")
    before, after = find_held(context.evidence, info, key), trace.get(key)
    if before is None or after is None:
        return False
    return not np.array_equal(before, densify(after))
