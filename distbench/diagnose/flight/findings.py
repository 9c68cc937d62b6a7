"""What is said of updates that steps in flight lost, made again or miscounted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from distbench.compare.envelope import Envelope
from distbench.diagnose.flight.counting import Count
from distbench.diagnose.flight.scale import CommonFactor
from distbench.diagnose.names import name_steps, tell_more
from distbench.diagnose.readings.outcome import list_places
from distbench.errors import count_things
from distbench.flight import Flight
from distbench.spelling import spell
from distbench.trace import WHOLE, Phase
from distbench.verdict import Finding, Outcome

AGAINST = {
    "exact": "one device, where every order of the steps gives the same bits",
    "bounded": "one device, in orders that the steps may have had",
}
"""What a round is held against, by tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a variable that came out wrong has of each step.

    Attributes:
        envelope: The variable after a round.
        count: Which steps it lacks, or has again.
    """

    envelope: Envelope
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that one code says of one kind of state.

    Attributes:
        steps: By variable, the steps that it concerns, and how often beyond once.
        counted: Where.
        instead: By variable, the steps that came again in the place of these.
    """

    steps: dict[str, dict[int, int]] = field(default_factory=dict)
    counted: list[Counted] = field(default_factory=list)
    instead: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def confidence(self) -> float:
        """Share of the error that the steps explain, where they explain least."""
        return min(counted.count.confidence for counted in self.counted)

    def keep(self, path: str, steps: Collection[int]) -> None:
        """Say of a variable only that it concerns these steps, or nothing."""
        kept = {step: n for step, n in self.steps.pop(path).items() if step in steps}
        if kept:
            self.steps[path] = kept
        else:
            self.counted[:] = [c for c in self.counted if c.envelope.variable != path]


def join_steps(by_variable: Mapping[str, Mapping[int, int]]) -> set[int]:
    """The steps of all variables; see `Told`."""
    return set().union(*by_variable.values())


def make_finding(flight: Flight, code: str, phase: Phase, item: Told) -> Finding:
    """All that one code says of one kind of state, as one finding."""
    steps = sorted(join_steps(item.steps))
    names = tuple(item.steps)
    rounds = {counted.envelope.round for counted in item.counted}
    worst = max((c.envelope for c in item.counted), key=lambda e: e.rank)
    total = sum(sum(by_step.values()) for by_step in item.steps.values())
    seen = (
        f"seen in {len(rounds)} of {flight.observed.steps} rounds of "
        f"{flight.in_flight} steps"
    )
    if code == "lost-update":
        what, advice = _tell_lost(steps, item)
    elif code == "extra-update":
        what, advice = _tell_extra(steps, item, flight)
    else:
        what, advice = _tell_stale(steps, item)
    explanation = (
        f"Step {steps[0]}, {phase} of '{names[0]}'{tell_more(names)}: it {what} "
        f"({code}; {count_things(total, 'update')} of "
        f"{count_things(len(names), phase)}, {seen}; "
        f"error {worst.error:.3g}, allowed {worst.bound:.3g}, against "
        f"{AGAINST[flight.tier]}). {advice}"
    )
    confidence = item.confidence
    return _make(flight, code, steps[0], names, worst, explanation, confidence)


def _make(
    flight: Flight,
    code: str,
    step: int,
    variables: tuple[str, ...],
    worst: Envelope,
    explanation: str,
    confidence: float,
    *,
    ratio: float | None = None,
) -> Finding:
    """A finding whose numbers are those of the worst of what it names."""
    return Finding(
        code=code,
        phase=worst.phase,
        step=step,
        variable=variables[0],
        replicas=(0,),
        ratio=ratio,
        error=worst.error,
        bound=worst.bound,
        explanation=explanation,
        confidence=confidence,
        variables=variables,
        outcome=_make_outcome(flight, worst),
    )


def _tell_lost(steps: Sequence[int], item: Told) -> tuple[str, str]:
    """What state lacks, and what to do."""
    if item.instead:
        again = sorted(join_steps(item.instead))
        return (
            f"has the updates of {name_steps(again)} once more in the place of those "
            f"of {name_steps(steps)}{_tell_apart(item)}, which ended",
            (
                "A rule that writes a slot and reads it again, to change the variable "
                "by it, gets what another step has written meanwhile. Compute what is "
                "new once, and give it to both."
            ),
        )
    return (
        f"lacks the updates of {name_steps(steps)}{_tell_apart(item)}, which ended",
        (
            "Change variables in place, by assign_add, assign_sub or an Apply op: "
            "what is read, changed and assigned undoes what others wrote meanwhile. "
            "If the step skipped its update, let it not."
        ),
    )


def _tell_extra(steps: Sequence[int], item: Told, flight: Flight) -> tuple[str, str]:
    """What state has again, and what to do."""
    times = {1 + n for by_step in item.steps.values() for n in by_step.values()}
    often = "twice" if times == {2} else f"up to {max(times)} times"
    what = f"has the updates of {name_steps(steps)} {often}{_tell_apart(item)}"
    if again := [step for step in steps if step in flight.repeated]:
        return what, (
            f"TensorFlow ran {name_steps(again)} again, whose worker it had lost: "
            "what `schedule` takes is run at least once. Keep in a variable, next "
            "to what a step updates, that it has been applied."
        )
    return what, (
        "A step that is run again has to find out whether it was applied: a "
        "function that fails after its update must not be repeated."
    )


def _tell_stale(steps: Sequence[int], item: Told) -> tuple[str, str]:
    """By what steps changed state, and what to do."""
    return (
        f"was changed by what {name_steps(steps)}{_tell_apart(item)} made of an older "
        "value of it, which others had changed meanwhile",
        (
            "No step is lost, but what decays is the older value. Update it by one op, "
            "as the Apply ops do."
        ),
    )


def _tell_apart(item: Told) -> str:
    """Whether the steps are others in other variables."""
    alike = len({tuple(by_step) for by_step in item.steps.values()}) == 1
    return "" if alike else ", not all of them in each"


def count_iterations(
    flight: Flight,
    envelopes: Sequence[Envelope],
    told: Mapping[tuple[str, Phase], Told],
) -> list[Finding]:
    """A counter that differs by more than the steps that all variables lack or have.

    A step that did not take place at all is not counted, and that is right.
    """
    wrong = [e for e in envelopes if e.phase == "iterations" and e.wrong.any()]
    findings: dict[str, Finding] = {}
    for envelope in wrong:
        first = envelope.round * flight.in_flight
        steps = range(first, first + flight.in_flight)
        due = sum(_count_whole(envelopes, told, step) for step in steps)
        missed = float(np.max(np.abs(envelope.observed - envelope.middle - due)))
        if missed == 0 or envelope.variable in findings:
            continue
        counted = float(np.max(envelope.observed - envelope.start))
        expected = float(np.max(envelope.middle - envelope.start)) + due
        findings[envelope.variable] = Finding(
            code="iterations-wrong",
            phase="iterations",
            step=first,
            variable=envelope.variable,
            replicas=(0,),
            ratio=counted / expected if expected else None,
            error=missed,
            bound=0.0,
            explanation=(
                f"Step {first}, iterations of '{envelope.variable}': {counted:g} steps "
                f"are counted where {expected:g} took place (iterations-wrong). Count "
                "each scheduled step once, on a variable that all workers share, "
                "where its update is."
            ),
            confidence=1.0,
            variables=(envelope.variable,),
            outcome=_make_outcome(flight, envelope),
        )
    return list(findings.values())


def _count_whole(
    envelopes: Sequence[Envelope],
    told: Mapping[tuple[str, Phase], Told],
    step: int,
) -> int:
    """-1 for a step that no variable has, n for one that all have n times more."""
    trained = find_trained(envelopes)
    for code, sign in (("lost-update", -1), ("extra-update", 1)):
        item = told.get((code, "variable"))
        # A step that left another one's update in the place of its own took place.
        found = {} if item is None or item.instead else item.steps
        times = [found.get(variable, {}).get(step, 0) for variable in trained]
        if times and min(times) > 0:
            return sign * min(times)
    return 0


def find_trained(envelopes: Sequence[Envelope]) -> set[str]:
    """Paths of the variables that steps move."""
    return {
        e.variable
        for e in envelopes
        if e.phase == "variable" and np.any(e.middle != e.start)
    }


def make_scaled(flight: Flight, factor: CommonFactor) -> Finding:
    """Every step counts too much or too little, by one factor."""
    worst = max(factor.wrong, key=lambda e: e.rank)
    names = tuple(dict.fromkeys(e.variable for e in factor.wrong))
    first = min(e.round for e in factor.wrong) * flight.in_flight
    explanation = (
        f"Step {first}, variable of '{names[0]}'{tell_more(names)}: every step "
        f"changes it by {factor.ratio:.3g} times what is due (scale-error; error "
        f"{worst.error:.3g}, allowed {worst.bound:.3g}, against "
        f"{AGAINST[flight.tier]}). A parameter server applies each step by itself: "
        "nothing is to be divided by the number of workers, or multiplied by it."
    )
    code, confidence = "scale-error", factor.confidence
    return _make(
        flight, code, first, names, worst, explanation, confidence, ratio=factor.ratio
    )


def make_unexplained(flight: Flight, envelopes: Sequence[Envelope]) -> Finding:
    """State of which no count of whole steps says how it came about."""
    worst = max(envelopes, key=lambda e: e.rank)
    names = tuple(dict.fromkeys([worst.variable, *(e.variable for e in envelopes)]))
    first = min(e.round for e in envelopes) * flight.in_flight
    explanation = (
        f"Step {first} and after it, {worst.phase} of '{names[0]}'{tell_more(names)}: "
        "no order of whole steps leaves what the cluster has, and neither does one "
        "without some of them or with some twice (unexplained; error "
        f"{worst.error:.3g}, allowed {worst.bound:.3g}). {_tell_torn(flight)}"
    )
    return _make(flight, "unexplained", first, names, worst, explanation, 0.0)


def _tell_torn(flight: Flight) -> str:
    """What a step leaves open to others, as far as its ops show it."""
    if flight.torn:
        return f"{tell_open(flight)}. Update it by one op, as the Apply ops do."
    return (
        f"If one step at a time passes (without {spell('in_flight')}), a step reads "
        "what another one's rule has half written, such as a slot between its "
        "assignment and its use, or a lookup table between its lookup and its insert."
    )


def tell_open(flight: Flight) -> str:
    """By which ops a step leaves state open to other steps."""
    return (
        f"The step reads its {' and '.join(sorted(flight.torn))} by one op and writes "
        "it by another, or reads it again after it wrote it: what other steps write in "
        "between gets in"
    )


def _make_outcome(flight: Flight, envelope: Envelope) -> Outcome | None:
    """The element that is farthest off; which one it is, is chance in the next run.

    None where the order of the steps decides what is right, or no script finds it.
    """
    if flight.tier != "exact":
        return None
    error = np.where(envelope.wrong, np.abs(envelope.observed - envelope.middle), -1.0)
    element = np.unravel_index(int(np.argmax(np.nan_to_num(error))), error.shape)
    place = list_places(flight.observed.variables).get(envelope.variable, -1)
    if envelope.phase == "variable" and place < 0:
        return None
    return Outcome(
        phase=envelope.phase,
        step=envelope.round,
        variable=envelope.variable,
        index=place,
        element=tuple(int(number) for number in element),
        replica=WHOLE,
        expected=float(envelope.middle[element]),
        observed=float(envelope.observed[element]),
        bound=0.0,
    )
