"""Steps in which either the replicas' shares or the whole batch's gradients overflow.

Under a loss scale one side leaves out a step then that the other one takes. One device
does not say what becomes of such a step. What needs no such word holds all the same:
own gradients were there before anything was decided, copies are equal, what is stored
is finite, and it follows from the sum of what each replica has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.copies import are_same
from distbench.compare.nature.met import goes_on_from_gradients
from distbench.compare.nature.own_overflows import find_own_overflows
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.names import name_steps
from distbench.evidence import Evidence
from distbench.trace import (
    COMPUTED,
    WHOLE,
    Phase,
    Trace,
    TraceKey,
    Value,
    Values,
)
from distbench.trace.numbers import densify, is_finite
from distbench.verdict import Status

_NOTHING_ELSE = (
    "what overflows on one side alone leaves no step in which anything could have been "
    "wrong; use more steps, or a smaller loss scale"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overflowing:
    """Steps in which gradients overflow.

    Attributes:
        either: See `Measure.overflowing`.
        parted: See `Measure.parted`.
    """

    either: frozenset[int]
    parted: frozenset[int]


def part_steps(evidence: Evidence) -> Evidence:
    """An evidence that knows in which steps replicas overflow, and who parts there.

    What one device makes there of the sums of replicas says as little, where it comes
    to what it made of its own, or to Inf. Nor does it say anything of a loss scale and
    its counts: these may go by its own gradients.
    """
    found = _find_overflowing(evidence)
    if not found.either:
        return evidence
    trained = evidence.reference.trained
    led = {info.path for info in evidence.observed.variables if info.of in trained}

    def leave(trace: Trace) -> Trace:
        steps = {step for step in found.parted if not _tells(evidence, trace, step)}
        return _keep(
            trace,
            lambda key: (
                key.step not in found.parted
                or (key.step not in steps and key.variable in trained | led)
            ),
        )

    return replace(
        evidence,
        fed=evidence.fed.change_traces(leave),
        measure=replace(
            evidence.measure,
            overflowing=found.either,
            parted=found.parted,
            begun=frozenset(_list_begun(evidence, found.parted)),
        ),
    )


def list_parted(evidence: Evidence) -> frozenset[int]:
    """Steps of which `Measure.parted` tells."""
    return _find_overflowing(evidence).parted


def leave_parted(evidence: Evidence, judgement: Judgement) -> Judgement:
    """Undecidable, where a free run goes its own way, or no other step trains anything.

    Why nothing could have been wrong is no reason any more then. Any other reason is.
    """
    parted, status = evidence.measure.parted, judgement.status
    if not parted or status is Status.FAIL:
        return judgement
    if evidence.tier == "free":
        message = "" if status is Status.VACUOUS else judgement.message
        return replace(judgement, status=Status.UNDECIDABLE, message=message)
    reference = evidence.reference
    others = set(range(reference.steps)) - parted
    if status is Status.PASS or any(
        _moves(evidence, reference, n, reference.trained) for n in others
    ):
        return judgement
    return replace(judgement, status=Status.UNDECIDABLE, message=_NOTHING_ELSE)


def note_parted(evidence: Evidence) -> str:
    """Says in which steps that is so; empty where there are none."""
    steps = sorted(evidence.measure.parted)
    if not steps:
        return ""
    is_free = evidence.tier == "free"
    either = "either the replicas' shares overflow or the gradients of the whole batch"
    where = name_steps(steps[:1] if is_free else steps)
    if is_free:
        return (
            f"in {where} {either}, and not both, so one side leaves out what the other "
            "one takes, and each goes its own way; the tier bounded tells more"
        )
    return (
        f"note: in {where} {either}, and not both, so what becomes of it was not held "
        "against one device's; copies have to be equal and finite all the same"
    )


def leave_steps(evidence: Evidence, steps: Collection[int]) -> Evidence:
    """An evidence without what was seen in some steps."""
    if not steps:
        return evidence
    observed = _keep(evidence.observed, lambda key: key.step not in steps)
    return replace(evidence, observed=observed)


def _keep(trace: Trace, is_kept: Callable[[TraceKey], bool]) -> Trace:
    return replace(trace, values=Values(trace.values).keep(is_kept))


def _find_overflowing(evidence: Evidence) -> _Overflowing:
    """Steps of one side and of both; of a free run also all later ones are parted.

    Whether a side leaves out what overflows is asked of its state: that stays finite.
    Which way the replicas go is known by all that holds without a reference. Where both
    overflow, they part if that leads one of them to leave out what the other one takes,
    as of two networks that each have a loss scale.
    """
    reference, observed = evidence.reference, evidence.observed
    seen, due = _list_odd(observed), _list_odd(reference, WHOLE)
    left = {step for step in due if _stays_finite(evidence, reference, step)}
    more = {s: seen.get(s, set()) - due.get(s, set()) for s in seen.keys() | due.keys()}
    fewer = {s: due.get(s, set()) - seen.get(s, set()) for s in more}
    own = {
        step
        for step in find_own_overflows(evidence, seen)
        if (step in left if step in due else _leaves_out(evidence, step, left))
    }
    alone = left - seen.keys()
    # A sum of finite addends may overflow as well, and is left out then.
    taken = {
        step
        for step in alone | own
        if _moves(evidence, observed, step, fewer[step])
        and _hands_on_any(observed, step)
    }
    kept = {s for s in own if s not in due or _moves(evidence, reference, s, more[s])}
    parted = kept | taken
    if evidence.tier == "free" and parted:
        parted = set(range(min(parted), max(reference.steps, observed.steps)))
    return _Overflowing(either=frozenset(own | alone), parted=frozenset(parted))


def _list_odd(trace: Trace, replica: int | None = None) -> dict[int, set[str]]:
    """By step, variables of which own gradients are not finite, if there are any."""
    found: dict[int, set[str]] = {}
    for key, value in trace.select(phase="local_gradient", replica=replica):
        if not is_finite(value):
            found.setdefault(key.step, set()).add(key.variable)
    return found


def _leaves_out(evidence: Evidence, step: int, left: Collection[int]) -> bool:
    """Whether one device leaves out what is not finite: who steps on is wrong then.

    It was asked, or does so in another step, or where it is given what replicas sum.
    """
    fed = evidence.fed
    sums = _list_own(evidence.observed, step, "reduced_gradient")
    is_handed = not all(is_finite(value) for _, value in sums)
    given = (fed.replays.get("reduced_gradient") if is_handed else None, fed.due)
    return (
        evidence.subject.guards
        or bool(left)
        or any(
            _stays_finite(evidence, trace, step)
            for trace in given
            if trace is not None and any(_list_trained(evidence, trace, step))
        )
    )


def _list_begun(evidence: Evidence, parted: Collection[int]) -> Iterator[TraceKey]:
    """Losses and own gradients of such steps that no update of theirs has led.

    One device has the same ones where it makes the replicas' updates. Where it cannot,
    only those before the first update are known to be such. A free run has gone its own
    way before all but the first of these steps.
    """
    if goes_on_from_gradients(evidence):
        return  # by hand
    reference, given = evidence.reference, evidence.fed.replays.get("reduced_gradient")
    is_once = max(reference.calls, evidence.observed.calls) == 1
    for step in sorted(parted)[:1] if evidence.tier == "free" else parted:
        led = given if given is not None and _tells(evidence, given, step) else None
        for key, due in reference.select(step=step, replica=WHOLE):
            if key.phase not in COMPUTED:
                continue
            value = None if led is None else led.get(key.at(0))
            is_first = is_once or (key.phase != "loss" and key.call == 0)
            if is_first if value is None else are_same(value, due):
                yield key


def _hands_on_any(trace: Trace, step: int) -> bool:
    """Whether an update is handed anything, as far as that was seen."""
    sums = [densify(v) for _, v in _list_own(trace, step, "reduced_gradient")]
    return not sums or any(array.any() for array in sums)


def _tells(evidence: Evidence, trace: Trace, step: int) -> bool:
    """Whether what one device was given there led it another way, to finite numbers."""
    states = [
        (value, evidence.reference.get(key.at(WHOLE)))
        for key, value in _list_trained(evidence, trace, step)
    ]
    is_same = all(due is not None and are_same(value, due) for value, due in states)
    return not is_same and _stays_finite(evidence, trace, step)


def _moves(evidence: Evidence, trace: Trace, step: int, paths: Collection[str]) -> bool:
    """Whether a step changes any of these trained variables, on any replica."""
    return any(
        before is None or not are_same(value, before)
        for key, value in _list_trained(evidence, trace, step)
        if key.variable in paths
        for before in (_find_held(evidence, trace, key),)
    )


def _stays_finite(evidence: Evidence, trace: Trace, step: int) -> bool:
    """Whether nothing that is trained becomes Inf or NaN, on any replica."""
    for key, value in _list_trained(evidence, trace, step):
        if is_finite(value):
            continue
        before = _find_held(evidence, trace, key)
        if before is None or np.any(_find_odd(value) & ~_find_odd(before)):
            return False
    return True


def _find_held(evidence: Evidence, trace: Trace, key: TraceKey) -> Value | None:
    if trace is evidence.observed:
        return evidence.get_held(key)
    return evidence.get_before(key.step, key.phase, key.variable)


def _list_trained(
    evidence: Evidence, trace: Trace, step: int
) -> Iterator[tuple[TraceKey, Value]]:
    """The state after a step that follows from gradients."""
    trained = evidence.reference.trained
    found = _list_own(trace, step, "variable")
    return ((key, value) for key, value in found if key.variable in trained)


def _list_own(
    trace: Trace, step: int, phase: Phase
) -> Iterator[tuple[TraceKey, Value]]:
    """What a run of replicas has, or one device of the whole batch."""
    found = list(trace.select(step=step, phase=phase))
    is_whole = any(key.replica == WHOLE for key, _ in found)
    return ((k, v) for k, v in found if not is_whole or k.replica == WHOLE)


def _find_odd(value: Value) -> npt.NDArray[np.bool_]:
    """Elements that are Inf or NaN."""
    return ~np.isfinite(densify(value))
