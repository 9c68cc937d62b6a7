"""What the steps of a scenario leave as it is, and a later step changes.

That is state, and what a step decides: another rule than before, from some step on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from distbench.errors import BadInputError
from distbench.late import Late
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import have_same_bits
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.decisions import Decisions, has_decisions

LOOKS_AHEAD = 16
"""How many steps one device takes to see. What is done every few steps, such as moving
slow weights or applying what was accumulated, is done every tenth at the latest where
nobody says otherwise: by Lookahead every fifth or sixth, by SOAP and Sophia every tenth
(Zhang et al. 2019; Vyas et al. 2024; Liu et al. 2023)."""
_WANTED = 2
"""A first change may be right where those that follow are wrong: a count that starts at
0 says nothing of what it is multiplied by."""
_Key = tuple[str, int]
_Seen = dict[_Key, np.ndarray]


@dataclass(slots=True, kw_only=True)
class _Changes:
    """In which steps a value changes.

    Attributes:
        is_set_up: Whether the first step changes it, which is not counted.
        all: Numbers of the others, of two at most.
        away: The same of those that lead to another value than before the first one: a
            condition that holds in every fifth step changes twice for each of them.
    """

    is_set_up: bool = False
    all: list[int] = field(default_factory=list)
    away: list[int] = field(default_factory=list)
    _start: np.ndarray | None = None

    def add(self, step: int, before: np.ndarray, after: np.ndarray) -> None:
        """Take down that a step changes the value."""
        if self._start is None:
            self._start = before
        if len(self.all) < _WANTED:
            self.all.append(step)
        if len(self.away) < _WANTED and not have_same_bits(self._start, after):
            self.away.append(step)

    @property
    def is_known(self) -> bool:
        """Whether no further step would tell more."""
        return len(self.all) == len(self.away) == _WANTED

    @property
    def last(self) -> int:
        """The last step that is to be seen, of a value that changes at all."""
        return max(self.all[-1], self.away[-1])

    def is_late(self, steps: int) -> bool:
        """Whether so many steps do not show it, or nothing that follows it."""
        if not self.all:
            return False
        is_last = self.all[0] == steps - 1 > 0 and not self.is_set_up
        return is_last or self.all[0] >= steps


def find_late(reference: Reference) -> Late:
    """Find what the steps of a scenario leave as it is, or change in the last one.

    A first step may set up what later ones use, so what it changes is not counted, if
    the scenario has more.

    Args:
        reference: Ran all its steps before.
    """
    steps = reference.scenario.steps
    by, decisions = _trace_watched(reference)
    kept = reference.list_written() - _list_begun_anew(reference)
    reference.session.restore_state(reference.initial)
    before = _look(reference, kept, decisions)
    seen = {key: _Changes() for key in before}
    taken, gaps = 0, []
    while taken < LOOKS_AHEAD and (wanted := _list_wanted(seen, steps)):
        try:
            reference.run_whole(taken, reference.draw(taken), by)
        except (BadInputError, SubjectError):
            if taken < steps:
                raise
            break
        after = _look(reference, {path for path, _ in wanted}, decisions)
        for key in wanted:
            # Nothing was decided before the first step, nor in a branch that none took.
            if not before[key].size or have_same_bits(before[key], after[key]):
                continue
            if taken == 0 and steps > 1:
                seen[key].is_set_up = True
            else:
                seen[key].add(taken, before[key], after[key])
        before = after
        gaps.append(decisions.read_gaps())
        taken += 1
    late = _sum_up(seen, steps, taken, decisions)
    return replace(late, ahead=decisions.foresee(gaps))


def _list_begun_anew(reference: Reference) -> set[str]:
    """Paths of what begins each step as it did the one before, whatever that left.

    So what a step leaves there, as often as not the same as the last one, is of that
    step alone. It is put back from zeros and from ones.
    """
    session = reference.session
    if not session.program.resets:
        return set()
    held = session.read_state(reference.list_written())
    ends = []
    for fill in (np.zeros_like, np.ones_like):
        moved = {key[0]: fill(v) for key, v in held.items() if v.dtype != np.object_}
        session.write_state(moved)
        try:
            with session.guard("step"):
                session.program.reset()
        except SubjectError:  # not from there
            return set()
        ends.append(session.read_state(moved))
    return {key[0] for key, end in ends[0].items() if have_same_bits(end, ends[1][key])}


def _list_wanted(seen: Mapping[_Key, _Changes], steps: int) -> list[_Key]:
    """What further steps are to tell more of; of nothing, if nothing may be late."""
    is_any_late = any(changes.is_late(steps) for changes in seen.values())
    if not is_any_late and all(changes.all for changes in seen.values()):
        return []
    return [key for key, changes in seen.items() if not changes.is_known]


def _sum_up(
    seen: Mapping[_Key, _Changes], steps: int, taken: int, decisions: Decisions
) -> Late:
    """What is late of all that was seen.

    Args:
        seen: What changes when.
        steps: How many the scenario has.
        taken: How many one device took: for more there may be no data.
        decisions: What the step decides.
    """
    late = {key: c.all[0] for key, c in seen.items() if c.is_late(steps)}
    last = max((changes.last for changes in seen.values() if changes.all), default=0)
    following = max(late.values(), default=0) + 1
    shown = min(taken, max(last, following) + 1)
    if not late or shown <= steps:
        return Late()
    first: dict[str, int] = {}
    for (path, _), step in sorted(late.items(), key=lambda item: (item[1], item[0])):
        first.setdefault(_name(path, decisions), step)
    return Late(first=first, steps=shown)


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


def _look(reference: Reference, paths: Collection[str], decisions: Decisions) -> _Seen:
    """State of some paths and what was decided last; each with a number behind."""
    return {**reference.session.read_state(paths), **decisions.read()}


def _name(path: str, decisions: Decisions) -> str:
    return path if path in decisions.lines else f"'{path}'"
