"""Judges a run with steps in flight: lost, extra and miscounted updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from distbench.compare.envelope import Envelope, find_end, list_envelopes
from distbench.details import Compared
from distbench.diagnose.counting import Count, count_updates
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.names import name_steps
from distbench.flight import Flight
from distbench.trace import WHOLE, Phase, TraceKey
from distbench.verdict import Finding, Outcome, Status, Worst

_AGAINST = {
    "exact": "one device, where every order of the steps gives the same bits",
    "bounded": "one device, in orders that the steps may have had",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """What a variable that came out wrong has of each step."""

    envelope: Envelope
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """All that one code says of one kind of state.

    Attributes:
        steps: By variable, the steps that it concerns, and how often beyond once.
        counted: Where.
    """

    steps: dict[str, dict[int, int]] = field(default_factory=dict)
    counted: list[_Counted] = field(default_factory=list)


def judge_flight(flight: Flight) -> Judgement:
    """Hold what the rounds left behind against what they may have left."""
    with np.errstate(all="ignore"):
        envelopes = tuple(list_envelopes(flight))
        findings = tuple(_explain(flight, envelopes))
        hidden, empty = _find_weak(flight, envelopes)
    notes = [describe_staleness(flight)]
    status = Status.FAIL if findings else Status.PASS
    if not findings and empty:
        status = Status.VACUOUS
        notes.insert(
            0,
            f"without {name_steps(empty)} the numbers would be the same; use data "
            "with gradients that are not 0",
        )
    elif not findings and hidden:
        status = Status.UNDECIDABLE
        notes.insert(
            0,
            f"without {name_steps(hidden)} the state could be the same in another "
            "order of the others; use fewer steps in flight, or one worker",
        )
    return Judgement(
        status=status,
        findings=findings,
        checked=len(envelopes),
        worst=_find_worst(envelopes),
        references={e.phase: _AGAINST[flight.tier] for e in envelopes},
        message="; ".join(notes),
        compared=tuple(_describe(e, _AGAINST[flight.tier]) for e in envelopes),
    )


def describe_staleness(flight: Flight) -> str:
    """How many steps ran beside others, and how old their view of the variables was."""
    ages = flight.staleness
    beside = sum(age > 0 for age in ages)
    others = "1 other" if max(ages) == 1 else f"{max(ages)} others"
    text = (
        f"{len(ages)} steps, {flight.in_flight} in flight: while a step ran, at most "
        f"{others} ended, {sum(ages) / len(ages):.2g} on average, and "
        f"{beside} steps saw that"
    )
    if flight.repeated:
        text += f"; {name_steps(flight.repeated)} had to be run again"
    if not beside:
        text += "; no step ran beside another, so no race could show"
    return text


def _explain(flight: Flight, envelopes: Sequence[Envelope]) -> list[Finding]:
    told: dict[tuple[str, Phase], _Told] = defaultdict(_Told)
    unexplained: list[Envelope] = []
    for envelope in envelopes:
        if envelope.phase == "iterations" or not envelope.wrong.any():
            continue
        counted = _Counted(envelope=envelope, count=count_updates(flight, envelope))
        if not (counted.count.lost or counted.count.extra):
            unexplained.append(envelope)
        for code, steps in (
            ("lost-update", dict.fromkeys(counted.count.lost, 1)),
            ("extra-update", counted.count.extra),
        ):
            if steps:
                item = told[code, envelope.phase]
                item.steps.setdefault(envelope.variable, {}).update(steps)
                item.counted.append(counted)
    _leave_out_slots(told)
    findings = [
        _make_finding(flight, code, phase, item) for (code, phase), item in told.items()
    ]
    findings += _count_iterations(flight, envelopes, told)
    if not findings and unexplained:
        findings.append(_make_unexplained(flight, unexplained))
    return findings


def _leave_out_slots(told: dict[tuple[str, Phase], _Told]) -> None:
    """A step that the variables lack, or have again, is told of these alone."""
    for code in ("lost-update", "extra-update"):
        variables, slots = told.get((code, "variable")), told.get((code, "slot"))
        if variables and slots:
            known = set().union(*map(set, variables.steps.values()))
            if set().union(*map(set, slots.steps.values())) <= known:
                del told[code, "slot"]


def _make_finding(flight: Flight, code: str, phase: Phase, item: _Told) -> Finding:
    steps = sorted(set().union(*map(set, item.steps.values())))
    names = tuple(item.steps)
    rounds = {counted.envelope.round for counted in item.counted}
    worst = max((c.envelope for c in item.counted), key=_rank)
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
            f"{_count(total, 'update')} of {_count(len(names), phase)}, {seen}; error "
            f"{worst.error:.3g}, allowed {worst.bound:.3g}, against "
            f"{_AGAINST[flight.tier]}). {advice}"
        ),
        confidence=min(counted.count.confidence for counted in item.counted),
        variables=names,
        outcome=_make_outcome(flight, worst),
    )


def _count_iterations(
    flight: Flight,
    envelopes: Sequence[Envelope],
    told: Mapping[tuple[str, Phase], _Told],
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
    told: Mapping[tuple[str, Phase], _Told],
    step: int,
) -> int:
    """-1 for a step that no variable has, n for one that all have n times more."""
    trained = {
        e.variable
        for e in envelopes
        if e.phase == "variable" and np.any(e.middle != e.start)
    }
    for code, sign in (("lost-update", -1), ("extra-update", 1)):
        item = told.get((code, "variable"))
        found = {} if item is None else item.steps
        times = [found.get(variable, {}).get(step, 0) for variable in trained]
        if times and min(times) > 0:
            return sign * min(times)
    return 0


def _make_unexplained(flight: Flight, envelopes: Sequence[Envelope]) -> Finding:
    worst = max(envelopes, key=_rank)
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
        outcome=_make_outcome(flight, worst),
    )


def _make_outcome(flight: Flight, envelope: Envelope) -> Outcome | None:
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


def _find_weak(
    flight: Flight, envelopes: Sequence[Envelope]
) -> tuple[list[int], list[int]]:
    """Steps that could be lost unseen: hidden by the orders, or without any effect."""
    hidden: list[int] = []
    empty: list[int] = []
    for number in range(flight.observed.steps):
        here = [e for e in envelopes if e.round == number and e.phase != "iterations"]
        for place, trace in flight.lost.items():
            step = number * flight.in_flight + place
            ends = [(e, find_end(trace, _find_key(e))) for e in here]
            if any(e.leaves(end).any() for e, end in ends):
                continue
            base = flight.orders[0]
            moved = any(
                not np.array_equal(end, find_end(base, _find_key(e)), equal_nan=True)
                for e, end in ends
            )
            (hidden if moved else empty).append(step)
    return hidden, empty


def _find_key(envelope: Envelope) -> TraceKey:
    return TraceKey(
        step=envelope.round, phase=envelope.phase, variable=envelope.variable
    )


def _find_worst(envelopes: Sequence[Envelope]) -> Worst | None:
    if not envelopes:
        return None
    worst = max(envelopes, key=_measure)
    return Worst(
        phase=worst.phase,
        variable=worst.variable,
        error_over_bound=_measure(worst),
    )


def _measure(envelope: Envelope) -> float:
    """Error ÷ bound, above 1 only where an element lies beyond the envelope."""
    if envelope.bound:
        return envelope.error / envelope.bound
    return float("inf") if envelope.wrong.any() else 0.0


def _rank(envelope: Envelope) -> tuple[float, float]:
    """Ranks by how far an element lies beyond; of those due to the bit by the error."""
    return _measure(envelope), envelope.error


def _describe(envelope: Envelope, against: str) -> Compared:
    return Compared(
        step=envelope.round,
        call=0,
        phase=envelope.phase,
        variable=envelope.variable,
        replica=WHOLE,
        relation="orders",
        against=against,
        error=envelope.error,
        bound=envelope.bound,
        error_over_bound=_measure(envelope),
        ratio=None,
        wrong=bool(envelope.wrong.any()),
    )


def _count(number: int, what: str) -> str:
    """`1 update`, `3 updates`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
