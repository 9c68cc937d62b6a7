"""Judges a run with steps in flight: lost, extra and miscounted updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.envelope import Envelope, find_end, list_envelopes
from distbench.details import Compared
from distbench.diagnose.flight.counting import Count, count_updates
from distbench.diagnose.flight.findings import (
    AGAINST,
    Counted,
    Told,
    count_iterations,
    find_trained,
    join_steps,
    make_finding,
    make_scaled,
    make_unexplained,
    tell_open,
)
from distbench.diagnose.flight.scale import find_common_factor
from distbench.diagnose.flight.stale import explain_as_stale
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.names import name_steps
from distbench.flight import Flight
from distbench.trace import WHOLE, Phase
from distbench.verdict import Finding, Status, Worst

_WHOLLY = 0.95
"""Share of the error that whole steps explain, where some are lost or come again: with
rules of a family that miscount their steps it was 0.86 and less without."""


def judge_flight(flight: Flight) -> Judgement:
    """Hold what the rounds left behind against what they may have left."""
    with np.errstate(all="ignore"):
        envelopes = tuple(list_envelopes(flight))
        findings = tuple(_explain(flight, envelopes))
        hidden, empty = _find_weak(flight, envelopes)
    notes = [_describe_staleness(flight)]
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
    elif not findings and flight.torn:
        notes.append(
            f"{tell_open(flight)}, which changed no more than their order may change"
        )
    return Judgement(
        status=status,
        findings=findings,
        checked=len(envelopes),
        worst=_find_worst(envelopes),
        references={e.phase: AGAINST[flight.tier] for e in envelopes},
        message="; ".join(notes),
        compared=tuple(_describe(e, AGAINST[flight.tier]) for e in envelopes),
    )


def _describe_staleness(flight: Flight) -> str:
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
    factor = find_common_factor(flight, envelopes)
    if factor is not None:
        scaled = make_scaled(flight, factor)
        return [scaled, *count_iterations(flight, envelopes, {})]
    wrong = [e for e in envelopes if e.wrong.any()]
    is_led = any(e.variable in flight.torn_paths for e in wrong)
    told: dict[tuple[str, Phase], Told] = defaultdict(Told)
    counted: list[Counted] = []
    for envelope in wrong:
        if envelope.phase == "iterations":
            continue
        count = count_updates(flight, envelope)
        overtaken = _list_overtaken(flight, envelope.round)
        share = explain_as_stale(flight, envelope)
        if overtaken and share > count.confidence:
            item = told["stale-read", envelope.phase]
            own = item.steps.setdefault(envelope.variable, {})
            own.update(dict.fromkeys(overtaken, 1))
            count = replace(count, lost=(), extra={}, confidence=share)
            item.counted.append(Counted(envelope=envelope, count=count))
        elif not is_led or _is_root(flight, envelope, count):
            counted.append(Counted(envelope=envelope, count=count))
    # What each variable of each round tells for counts of steps, or against, adds up.
    if sum(each.count.saved for each in counted) > 0:
        _tell_counts(told, [each for each in counted if each.count.saved > 0])
    if is_led:
        _leave_out_led(flight, told, envelopes)
    _leave_out_slots(told)
    _leave_out_followers(flight, told, is_led=is_led)
    _join_swapped(told)
    findings = [
        make_finding(flight, code, phase, item) for (code, phase), item in told.items()
    ]
    findings += count_iterations(flight, envelopes, told)
    if not findings and wrong:
        # What a count told may have been left to state of which none tells anything.
        roots = [c.envelope for c in counted]
        findings.append(make_unexplained(flight, roots or wrong))
    return findings


def _is_root(flight: Flight, envelope: Envelope, count: Count) -> bool:
    """Whether state is wrong of itself, where some is that steps leave open to others.

    What is changed by one op follows from that, unless a whole step is lost in it.
    """
    is_open = envelope.variable in flight.torn_paths
    return is_open or (count.saved > 0 and count.confidence >= _WHOLLY)


def _tell_counts(
    told: dict[tuple[str, Phase], Told], counted: Sequence[Counted]
) -> None:
    """Add the steps that state lacks or has again, and where."""
    for each in counted:
        envelope, count = each.envelope, each.count
        for code, steps in (
            ("lost-update", dict.fromkeys(count.lost, 1)),
            ("extra-update", count.extra),
        ):
            if steps:
                item = told[code, envelope.phase]
                item.steps.setdefault(envelope.variable, {}).update(steps)
                item.counted.append(each)


def _list_overtaken(flight: Flight, number: int) -> list[int]:
    """The steps of a round while which others ended."""
    first = number * flight.in_flight
    steps = range(first, first + flight.in_flight)
    return [step for step in steps if flight.staleness[step]]


def _leave_out_led(
    flight: Flight, told: dict[tuple[str, Phase], Told], envelopes: Sequence[Envelope]
) -> None:
    """What is changed by torn state, read again, has another one's update for its own.

    So it may lack a step, and have one twice, where that state is wrong. A step that
    everything lacks, or has again, is told of it all the same.
    """
    trained = find_trained(envelopes)
    for code in ("lost-update", "extra-update"):
        item = told.get((code, "variable"))
        if item is None:
            continue
        whole = {
            step
            for step in join_steps(item.steps)
            if all(step in item.steps.get(path, ()) for path in trained)
        }
        for path in flight.led_paths & item.steps.keys():
            item.keep(path, whole)
        if not item.steps:
            del told[code, "variable"]


def _leave_out_slots(told: dict[tuple[str, Phase], Told]) -> None:
    """A step that the variables lack, or have again, is told of these alone."""
    for code in ("lost-update", "extra-update"):
        variables, slots = told.get((code, "variable")), told.get((code, "slot"))
        if not variables or not slots:
            continue
        if join_steps(slots.steps) <= join_steps(variables.steps):
            del told[code, "slot"]


def _leave_out_followers(
    flight: Flight, told: dict[tuple[str, Phase], Told], *, is_led: bool
) -> None:
    """Variables that are changed in place follow from state that is not.

    A step that is wholly lost is seen beside that all the same, and so is one that
    comes again where a variable takes nothing from that state: what moves twice as far
    may have a counter behind it that is too small.
    """
    if "variable" in flight.torn:
        return
    by_slots = "slot" in flight.torn and any(phase == "slot" for _, phase in told)
    for code in ("lost-update", "extra-update"):
        item = told.get((code, "variable"))
        if item is None:
            continue
        is_open = code == "extra-update" and any(
            _shares_state(flight, counted.envelope) for counted in item.counted
        )
        if by_slots or (is_led and is_open):
            del told[code, "variable"]


def _shares_state(flight: Flight, envelope: Envelope) -> bool:
    """Whether any element is another one without one step, and without another one."""
    base = find_end(flight.orders[0], envelope.key)
    ends = [find_end(trace, envelope.key) for trace in flight.lost.values()]
    moved = np.sum([end != base for end in ends], axis=0)
    return bool(np.any(moved > 1))


def _join_swapped(told: dict[tuple[str, Phase], Told]) -> None:
    """What has as many updates too often as it lacks has one in the other's place."""
    for phase in sorted({phase for _, phase in told}):
        lost, extra = (
            told.get((code, phase)) for code in ("lost-update", "extra-update")
        )
        if lost and extra:
            counts = [item.count for item in (*lost.counted, *extra.counted)]
            if all(len(c.lost) == sum(c.extra.values()) for c in counts):
                lost.instead.update(told.pop(("extra-update", phase)).steps)


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
            ends = [(e, find_end(trace, e.key)) for e in here]
            if any(e.leaves(end).any() for e, end in ends):
                continue
            base = flight.orders[0]
            moved = any(
                not np.array_equal(end, find_end(base, e.key), equal_nan=True)
                for e, end in ends
            )
            (hidden if moved else empty).append(step)
    return hidden, empty


def _find_worst(envelopes: Sequence[Envelope]) -> Worst | None:
    if not envelopes:
        return None
    worst = max(envelopes, key=lambda e: e.error_over_bound)
    return Worst(
        phase=worst.phase,
        variable=worst.variable,
        error_over_bound=worst.error_over_bound,
    )


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
        error_over_bound=envelope.error_over_bound,
        ratio=None,
        wrong=bool(envelope.wrong.any()),
    )
