"""Findings about steps in flight: which updates are lost, or there again, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from distbench.compare.envelope import Envelope
from distbench.diagnose.counting import Count
from distbench.diagnose.names import name_steps
from distbench.flight import Flight
from distbench.trace import WHOLE, Phase
from distbench.verdict import Finding, Outcome

AGAINST = {
    "exact": "one device, where every order of the steps gives the same bits",
    "bounded": "one device, in orders that the steps may have had",
}
"""What is told of each tier to be compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a variable that came out wrong has of each step."""

    envelope: Envelope
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that one code says of one kind of state.

    Attributes:
        steps: By variable, the steps that it concerns, and how often beyond once.
        counted: Where.
    """

    steps: dict[str, dict[int, int]] = field(default_factory=dict)
    counted: list[Counted] = field(default_factory=list)


def make_finding(flight: Flight, code: str, phase: Phase, item: Told) -> Finding:
    """The finding for updates that are lost, or there again.

    Args:
        flight: The run.
        code: `lost-update` or `extra-update`.
        phase: Role of the state.
        item: Which steps it concerns, and where.
    """
    steps = sorted(set().union(*map(set, item.steps.values())))
    names = tuple(item.steps)
    rounds = {counted.envelope.round for counted in item.counted}
    worst = max((c.envelope for c in item.counted), key=lambda e: e.error)
    total = sum(sum(by_step.values()) for by_step in item.steps.values())
    alike = len({tuple(by_step) for by_step in item.steps.values()}) == 1
    apart = "" if alike else ", not all of them in each"
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    seen = (
        f"seen in {len(rounds)} of {flight.observed.steps} rounds of "
        f"{flight.in_flight} steps"
    )
    if code == "lost-update":
        what = f"lacks the updates of {name_steps(steps)}{apart}, which ended"
        advice = (
            "Change variables in place, by assign_add, assign_sub or an Apply op: "
            "what is read, changed and assigned undoes what others wrote meanwhile. "
            "If the step skipped its update, let it not."
        )
    else:
        times = {1 + n for by_step in item.steps.values() for n in by_step.values()}
        often = "twice" if times == {2} else f"up to {max(times)} times"
        what = f"has the updates of {name_steps(steps)} {often}{apart}"
        advice = (
            "A step that is run again has to find out whether it was applied: a "
            "function that fails after its update must not be repeated."
        )
        if again := [step for step in steps if step in flight.repeated]:
            advice = (
                f"TensorFlow ran {name_steps(again)} again, whose worker it had lost: "
                "what `schedule` takes is run at least once. Keep in a variable, next "
                "to what a step updates, that it has been applied."
            )
    return Finding(
        code=code,
        phase=phase,
        step=steps[0],
        variable=names[0],
        replicas=(0,),
        ratio=None,
        error=worst.error,
        bound=worst.bound,
        explanation=(
            f"Step {steps[0]}, {phase} of '{names[0]}'{more}: it {what} ({code}; "
            f"{total} in {len(names)} of its kind, {seen}; error {worst.error:.3g}, "
            f"allowed {worst.bound:.3g}, against {AGAINST[flight.tier]}). {advice}"
        ),
        confidence=min(counted.count.confidence for counted in item.counted),
        variables=names,
        outcome=make_outcome(flight, worst),
    )


def make_unexplained(flight: Flight, envelopes: Sequence[Envelope]) -> Finding:
    """The finding for wrong state that no number of whole steps comes to."""
    worst = max(envelopes, key=lambda e: e.error)
    names = tuple(dict.fromkeys(e.variable for e in envelopes))
    return Finding(
        code="unexplained",
        phase=worst.phase,
        step=0,
        variable=worst.variable,
        replicas=(0,),
        ratio=None,
        error=worst.error,
        bound=worst.bound,
        explanation=(
            f"Round {worst.round}, {worst.phase} of '{worst.variable}': no order of "
            "whole steps leaves what the cluster has, and neither does one without "
            f"some of them or with some twice (unexplained; error {worst.error:.3g}, "
            f"allowed {worst.bound:.3g}). If one step at a time passes (without "
            "--in-flight), a step reads what another one's rule has half written, "
            "such as a slot between its assignment and its use."
        ),
        confidence=0.0,
        variables=names,
        outcome=make_outcome(flight, worst),
    )


def make_outcome(flight: Flight, envelope: Envelope) -> Outcome | None:
    """The element that is farthest off; which one it is, is chance in the next run.

    None where the order of the steps decides what is right.
    """
    if flight.tier != "exact":
        return None
    error = np.where(envelope.wrong, np.abs(envelope.observed - envelope.middle), -1.0)
    element = np.unravel_index(int(np.argmax(np.nan_to_num(error))), error.shape)
    models = [v.path for v in flight.observed.variables if v.role == "variable"]
    is_model = envelope.phase == "variable"
    return Outcome(
        phase=envelope.phase,
        step=envelope.round,
        variable=envelope.variable,
        index=models.index(envelope.variable) if is_model else -1,
        element=tuple(int(number) for number in element),
        replica=WHOLE,
        expected=float(envelope.middle[element]),
        observed=float(envelope.observed[element]),
        bound=0.0,
    )
