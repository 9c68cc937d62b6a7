"""What the steps of a scenario leave as it is, and a later step changes.

That is state, and what a step decides: another rule than before, from some step on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from distbench.errors import BadInputError
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_equal
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.decisions import Decisions, has_decisions

LOOKS_AHEAD = 16
"""How many steps one device takes to see. What is done every few steps, such as moving
slow weights or applying what was accumulated, is done every tenth at the latest where
nobody says otherwise: by Lookahead every fifth or sixth, by SOAP and Sophia every tenth
(Zhang et al. 2019; Vyas et al. 2024; Liu et al. 2023)."""


def find_late(reference: Reference) -> Mapping[str, int]:
    """Steps in which something is first changed, where a scenario ends before them.

    A first step may set up what later ones use, so what it changes is not counted, if
    the scenario has more.

    Args:
        reference: Ran all its steps before.

    Returns:
        Numbers of steps, by each such variable, slot, counter or decision, as a message
        calls it. What nothing writes is none, nor what stands still in all steps that
        one device takes; nor is anything of steps for which the subject has no data.
    """
    steps = reference.scenario.steps
    by, decisions = _trace_watched(reference)
    reference.session.restore_state(reference.initial)
    before = _look(reference, reference.list_written(), decisions)
    waiting = set(before)
    late: dict[str, int] = {}
    for step in range(LOOKS_AHEAD):
        if not waiting:
            break
        try:
            reference.run_whole(step, reference.draw(step), by)
        except (BadInputError, SubjectError):
            if step < steps:
                raise
            break
        after = _look(reference, {path for path, _ in waiting}, decisions)
        # Nothing was decided before the first step, nor in a branch that none took.
        known = {key for key in waiting if before[key].size}
        moved = {key for key in known if not are_equal(after[key], before[key])}
        if step >= steps:
            names = {_name(path, decisions) for path, _ in moved}
            late.update(dict.fromkeys(sorted(names), step))
        if step > 0 or steps == 1:
            waiting -= moved
        before = after
    return late


def _trace_watched(reference: Reference) -> tuple[Step | None, Decisions]:
    """A step that keeps what it decides; None where it decides nothing, or cannot."""
    session, decisions = reference.session, Decisions()
    if not session.tapped or not has_decisions(reference.graph):
        return None, decisions
    step, batch = session.make_step(), reference.draw(0)
    session.restore_state(reference.initial)
    try:
        with session.guard("step"), decisions.watch():
            session.program.replicas = 1
            step.trace([batch])
        reference.run_whole(0, batch, step)
    except SubjectError:  # what is kept comes in its way
        return None, Decisions()
    return step, decisions


def _look(
    reference: Reference, paths: Collection[str], decisions: Decisions
) -> dict[tuple[str, int], np.ndarray]:
    """State of some paths and what was decided last; each with a number behind."""
    return {**reference.session.read_state(paths), **decisions.read()}


def _name(path: str, decisions: Decisions) -> str:
    return path if path in decisions.lines else f"'{path}'"
