"""Steps in which either the replicas' shares or the whole batch's gradients overflow.

Under a loss scale one side leaves out a step then that the other one takes. One device
does not say what becomes of such a step. What needs no reference holds all the same:
copies are equal, what is stored is finite, and it follows from the sum of what each
replica has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.copies import are_same
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.names import name_steps
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Phase, Trace, TraceKey, Value, Values, list_arrays
from distbench.trace.numbers import densify
from distbench.verdict import Status

Places = Mapping[tuple[str, int], npt.NDArray[np.bool_]]
"""By variable and update: elements of which some own gradient is Inf or NaN."""

_NOTHING_ELSE = (
    "what overflows on one side alone leaves no step in which anything could have been "
    "wrong; use more steps, or a smaller loss scale"
)


def part_steps(evidence: Evidence) -> Evidence:
    """An evidence that knows in which steps one device and replicas part.

    What one device makes there of the sums of replicas says as little, where it comes
    to what it made of its own, or to Inf. Nor does it say anything of a loss scale and
    its counts: these may go by its own gradients.
    """
    parted = list_parted(evidence)
    if not parted:
        return evidence
    trained = evidence.reference.trained
    led = {info.path for info in evidence.observed.variables if info.of in trained}

    def leave(trace: Trace) -> Trace:
        steps = {step for step in parted if not _tells(evidence, trace, step)}
        return _keep(
            trace,
            lambda key: (
                key.step not in parted
                or (key.step not in steps and key.variable in trained | led)
            ),
        )

    return replace(
        evidence,
        fed=evidence.fed.change_traces(leave),
        measure=replace(evidence.measure, parted=parted),
    )


def list_parted(evidence: Evidence) -> frozenset[int]:
    """Those steps; of a free run also all later ones, which go on from the first."""
    steps = evidence.reference.steps
    seen, due = _list_odd(evidence.observed), _list_odd(evidence.reference, WHOLE)
    # Who overflows alike goes the same way, or is wrong.
    alone = sorted(seen.keys() ^ due.keys())
    found = {step for step in alone if _parts(evidence, step, seen, due)}
    if evidence.tier == "free" and found:
        found = set(range(min(found), max(steps, evidence.observed.steps)))
    return frozenset(found)


def leave_parted(evidence: Evidence, judgement: Judgement) -> Judgement:
    """Undecidable, where a free run goes its own way, or no other step proves anything.

    Why nothing could have been wrong is no reason any more.
    """
    is_passed = judgement.status is Status.PASS
    is_free = evidence.tier == "free"
    is_open = evidence.measure.parted and (is_free or not is_passed)
    if not is_open or judgement.status is Status.FAIL:
        return judgement
    message = judgement.message if is_passed else "" if is_free else _NOTHING_ELSE
    return replace(judgement, status=Status.UNDECIDABLE, message=message)


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


def _list_odd(trace: Trace, replica: int | None = None) -> dict[int, Places]:
    """By step, where own gradients are not finite; without steps in which all are."""
    found: dict[int, dict[tuple[str, int], npt.NDArray[np.bool_]]] = {}
    for key, value in trace.select(phase="local_gradient", replica=replica):
        if not all(np.isfinite(array).all() for array in list_arrays(value)):
            odd = _find_odd(value)
            places = found.setdefault(key.step, {})
            place = key.variable, key.call
            known = places.get(place)
            is_alike = known is not None and known.shape == odd.shape
            places[place] = known | odd if known is not None and is_alike else odd
    return dict(found)


def _parts(
    evidence: Evidence,
    step: int,
    seen: Mapping[int, Places],
    due: Mapping[int, Places],
) -> bool:
    """Whether one side leaves out what overflows there, and the other one need not.

    Whether that is what it does is asked of all that holds without a reference.
    """
    observed, reference = evidence.observed, evidence.reference
    if step in due:
        # A sum of finite addends may overflow as well, and is left out then.
        goes_on = _moves(evidence, observed, step) and _hands_on_any(observed, step)
        return goes_on and _leaves_out(evidence, reference, step, due[step])
    return (
        _overflows_by_itself(evidence, step)
        and _knows_to_leave_out(evidence, step, due)
        and (
            _shows_sums(evidence, step)
            or _leaves_out(evidence, observed, step, seen[step])
        )
    )


def _shows_sums(evidence: Evidence, step: int) -> bool:
    """Whether what the sums of replicas come to is known."""
    due = evidence.fed.due
    is_seen = any(_list_own(evidence.observed, step, "reduced_gradient"))
    return is_seen or (due is not None and _tells(evidence, due, step))


def _hands_on_any(trace: Trace, step: int) -> bool:
    """Whether an update is handed anything, as far as that was seen."""
    sums = [densify(v) for _, v in _list_own(trace, step, "reduced_gradient")]
    return not sums or any(np.any(array) for array in sums)


def _overflows_by_itself(evidence: Evidence, step: int) -> bool:
    """Whether shards overflow on one device too, wherever their replicas do.

    A shard alone has the mean over its own examples, which is no less than its
    replica's share of it, unless replicas exchange what their losses are made of: then
    it says nothing. One without examples has nothing that could overflow.
    """
    if evidence.observed.notes.get("exchange"):
        return True
    shards = evidence.reference.get_shards(step)
    for key, value in evidence.observed.select(step=step, phase="local_gradient"):
        odd = _find_odd(value)
        if not odd.any():
            continue
        alone = evidence.reference.get(key)
        if alone is None or not any(shards[key.replica :][:1]):
            return False
        beside = _find_odd(alone)
        if beside.shape != odd.shape or (odd & ~beside).any():
            return False
    return True


def _leaves_out(evidence: Evidence, trace: Trace, step: int, odd: Places) -> bool:
    """Whether a side leaves out what of its gradients is not finite.

    All that is trained is as it was, on all replicas; or what is handed to the update
    has nothing there, as where a momentum goes on, and what comes of it is finite.
    """
    if not _moves(evidence, trace, step):
        return True
    handed = list(_list_own(trace, step, "reduced_gradient"))
    return (
        bool(handed)
        and not any(_hands_on(value, odd, key) for key, value in handed)
        and _stays_finite(evidence, trace, step)
    )


def _hands_on(value: Value, odd: Places, key: TraceKey) -> bool:
    """Whether numbers are handed on in the place of some that are not finite."""
    array, places = densify(value), odd.get((key.variable, key.call))
    if places is None:
        return False
    if places.shape != array.shape:
        return True
    return bool(np.any(places & np.isfinite(array) & (array != 0)))


def _knows_to_leave_out(
    evidence: Evidence, step: int, due: Mapping[int, Places]
) -> bool:
    """Whether one device leaves out what is not finite: who steps on is wrong then.

    It was asked, or does so in another step, or where it is given what replicas sum.
    """
    fed, reference = evidence.fed, evidence.reference
    sums = _list_own(evidence.observed, step, "reduced_gradient")
    is_handed = any(_find_odd(value).any() for _, value in sums)
    given = (fed.replays.get("reduced_gradient") if is_handed else None, fed.due)
    return (
        evidence.subject.guards
        or any(
            _leaves_out(evidence, reference, other, odd) for other, odd in due.items()
        )
        or any(
            not _moves(evidence, trace, step)
            for trace in given
            if trace is not None and any(_list_trained(evidence, trace, step))
        )
    )


def _tells(evidence: Evidence, trace: Trace, step: int) -> bool:
    """Whether what one device was given there led it another way, to finite numbers."""
    states = [
        (value, evidence.reference.get(key.at(WHOLE)))
        for key, value in _list_trained(evidence, trace, step)
    ]
    is_same = all(due is not None and are_same(value, due) for value, due in states)
    return not is_same and _stays_finite(evidence, trace, step)


def _moves(evidence: Evidence, trace: Trace, step: int) -> bool:
    """Whether a step changes anything that is trained, on any replica."""
    return any(
        before is None or not are_same(value, before)
        for key, value in _list_trained(evidence, trace, step)
        for before in (_find_held(evidence, trace, key),)
    )


def _stays_finite(evidence: Evidence, trace: Trace, step: int) -> bool:
    """Whether nothing that is trained becomes Inf or NaN, on any replica."""
    for key, value in _list_trained(evidence, trace, step):
        odd, before = _find_odd(value), _find_held(evidence, trace, key)
        if odd.any() and (before is None or (odd & ~_find_odd(before)).any()):
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
