"""State that the steps of a scenario leave as it is, and a later step changes."""

from __future__ import annotations

from collections.abc import Mapping

from distbench.errors import BadInputError
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_equal

LOOKS_AHEAD = 16
"""How many steps one device takes to see. What is done every few steps, such as moving
slow weights or applying what was accumulated, is done every tenth at the latest where
nobody says otherwise: by Lookahead every fifth or sixth, by SOAP and Sophia every tenth
(Zhang et al. 2019; Vyas et al. 2024; Liu et al. 2023)."""


def find_late(reference: Reference) -> Mapping[str, int]:
    """Steps in which state is first changed, where a scenario ends before them.

    A first step may set up what later ones use, so what it does is not counted, if the
    scenario has more.

    Args:
        reference: Ran all its steps before.

    Returns:
        Numbers of steps, by the path of each such variable, slot or counter. What
        nothing writes is no such state, nor what stands still in all steps that one
        device takes; nor is anything of steps for which the subject has no data.
    """
    session, steps = reference.session, reference.scenario.steps
    waiting = set(reference.list_written())
    late: dict[str, int] = {}
    session.restore_state(reference.initial)
    before = session.read_state(waiting)
    for step in range(LOOKS_AHEAD):
        if not waiting:
            break
        try:
            reference.run_whole(step, reference.draw(step))
        except (BadInputError, SubjectError):
            if step < steps:
                raise
            break
        after = session.read_state(waiting)
        moved = {key[0] for key in after if not are_equal(after[key], before[key])}
        if step >= steps:
            late.update(dict.fromkeys(sorted(moved), step))
        if step > 0 or steps == 1:
            waiting -= moved
        before = {key: value for key, value in after.items() if key[0] in waiting}
    return late
