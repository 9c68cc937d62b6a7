"""What an observed value ought to be, as far as one device tells it."""

from __future__ import annotations

from collections.abc import Iterator

from distbench.compare.arrays.copies import are_same
from distbench.evidence import Evidence
from distbench.trace import GRADIENTS, SUMMED, WHOLE, Phase, Trace, TraceKey, Value
from distbench.trace.numbers import is_finite


class Expected:
    """Finds the single-device values that observed ones are held against."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._trained = {
            key.variable
            for key in evidence.reference.values
            if key.phase == "local_gradient"
        }
        self._fed = {
            (key.step, key.variable)
            for key in evidence.observed.values
            if key.phase in SUMMED
        }
        self._left_out = frozenset(_list_left_out(evidence))

    def find_reference(self, key: TraceKey) -> Value | None:
        """The single-device run's value, where the cluster has to arrive at it."""
        measure = self._evidence.measure
        is_spoilt = key.phase in GRADIENTS and key.step in measure.spoilt
        if is_spoilt and not self._is_told(key):
            return None
        if key.step in measure.parted and key.at(WHOLE) not in measure.begun:
            return None
        if key.phase not in measure.known and not self._is_settled(key):
            return None
        return self._evidence.reference.get(key)

    def _is_told(self, key: TraceKey) -> bool:
        """Whether a gradient is finite of a step of which others are not."""
        whole = self._evidence.reference.get(key.at(WHOLE))
        return key.phase == "local_gradient" and whole is not None and is_finite(whole)

    def is_apart(self, step: int) -> bool:
        """Whether a free run has gone its own way before a step."""
        return (
            self._evidence.tier == "free" and step - 1 in self._evidence.measure.parted
        )

    def find_finite(self, key: TraceKey) -> Value | None:
        """One device's state, where replicas hold Inf or NaN after a step and it none.

        So it has to be, whatever else is known of it.
        """
        evidence = self._evidence
        value = evidence.observed.get(key)
        is_trained = key.phase == "variable" and key.variable in self._trained
        if value is None or not is_trained or is_finite(value):
            return None
        states = evidence.reference.select(
            step=key.step, phase="variable", replica=WHOLE
        )
        due = {k.variable: v for k, v in states if k.variable in self._trained}
        return due.get(key.variable) if all(map(is_finite, due.values())) else None

    def _leave_infinite(self, key: TraceKey, value: Value | None) -> Value | None:
        """What follows, but not Inf for Inf where one device has numbers.

        That it makes Inf of an infinite sum as well says nothing of that sum.
        """
        if value is None or is_finite(value) or self.find_finite(key) is None:
            return value
        return None

    def _is_settled(self, key: TraceKey) -> bool:
        """Whether one device skips an update, which tells what the value has to be."""
        is_left = (key.step, key.variable) in self._evidence.measure.settled
        if not is_left or key.phase == "slot":
            return False
        return key.phase != "variable" or key.variable in self._trained

    def find_replay(self, key: TraceKey, source: Phase) -> Value | None:
        """What follows from the gradients that were observed at a phase."""
        if self._evidence.tier == "free" and key.step > 0:
            return None  # the replay started from another state than the cluster
        if key.step in self._left_out:
            return None  # what follows from a gradient says nothing of a step without
        replay = self._evidence.fed.replays.get(source)
        return None if replay is None else self._leave_infinite(key, replay.get(key))

    def find_due(self, key: TraceKey) -> Value | None:
        """What follows from the right sum, where none was seen and no reference is."""
        evidence, path = self._evidence, key.variable
        if (
            evidence.fed.due is None
            or key.phase != "variable"
            or path not in self._trained.union(evidence.subject.kept)
            or path in evidence.subject.undetermined
            or (key.step, path) in self._fed
            or self.find_reference(key.at(WHOLE)) is not None
        ):
            return None
        return self._leave_infinite(key, evidence.fed.due.get(key.at(0)))

    def is_fed(self, key: TraceKey) -> bool:
        """Whether state follows from the gradients that a replay is fed with.

        Three kinds of state do not: a variable without a gradient, such as a moving
        average of the data; state that depends on the data in another way as well, or
        on a number that Python holds; and what an optimizer keeps of the gradients that
        it was handed, before they are reduced. A replay changes the gradients behind
        that point, so it leaves such a slot as it is.
        """
        if key.variable in self._evidence.subject.undetermined:
            return False
        if key.phase == "variable":
            return (key.step, key.variable) in self._fed
        if key.phase != "slot":
            return True
        whole = self._evidence.reference.get(key.at(WHOLE))
        before = self._evidence.get_before(key.step, key.phase, key.variable)
        if whole is None or (before is not None and are_same(whole, before)):
            return True
        replays = self._evidence.fed.replays
        fed = [replays.get("reduced_gradient"), replays.get("local_gradient")]
        values = [
            v
            for trace in fed
            if trace is not None and (v := trace.get(key)) is not None
        ]
        if len(values) < 2 or self._evidence.observed.replicas == 1:
            return True
        return not all(are_same(value, whole) for value in values)


def _list_left_out(evidence: Evidence) -> Iterator[int]:
    """Steps that one device leaves out, as its gradients overflow, and replicas take.

    One device hands no gradient to its update then, though it does in other steps.
    """

    def list_steps(trace: Trace) -> set[int]:
        return {key.step for key in trace.values if key.phase == "reduced_gradient"}

    taken, due = list_steps(evidence.observed), list_steps(evidence.reference)
    for step in taken - due if due else ():
        if not evidence.reference.find_finite(step).get(WHOLE, True):
            yield step
