"""Inf or NaN where one device has numbers, and which replicas it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.by_hand import list_alone
from distbench.diagnose.hypotheses.overflow import tell_source
from distbench.diagnose.hypotheses.reduction import list_subsets
from distbench.diagnose.names import name_replicas
from distbench.trace import COMPUTED, WHOLE, TraceKey
from distbench.trace.numbers import Array, densify, is_finite

_ENOUGH = 16
"""So many signs does no other sum of gradients share by chance."""


def explain_by_nonfinite(context: Context) -> Iterator[Hypothesis]:
    """Inf or NaN where the expected value is finite."""
    predicted: dict[int, Array] = {}
    for number, case in enumerate(context.cases):
        seen, due = np.isfinite(case.observed), np.isfinite(case.expected)
        if seen.shape == due.shape and np.any(due & ~seen):
            predicted[number] = case.observed
    if predicted:
        found = [context.cases[number] for number in predicted]
        source = "" if context.phase in COMPUTED else tell_source(context)
        first = min(case.key.step for case in found)
        begun_at = [case for case in found if case.key.step == first]
        begun = _find_by_sign(context, begun_at)
        if begun and source:
            who = name_replicas(begun)
            source += f", and all infinities have the sign of the gradients of {who}"
        elif made := _find_by_change(context, begun_at):
            begun, who = made, name_replicas(made)
            source = (
                ", though all tapes give finite gradients: it begins before the sum, "
                f"in what is made of the gradients of {who}; one device makes Inf or "
                "NaN of them as well"
            )
        elif handed := _find_handed(context, first):
            begun, who = handed, name_replicas(handed)
            source = (
                ", though all tapes give finite gradients: it begins before the sum, "
                f"in what {who} hands to it"
            )
        yield Hypothesis(
            code="nonfinite",
            predicted=predicted,
            detail="Inf or NaN where one device has numbers"
            f"{source}{_tell_scale(context)}",
            replicas=begun or _find_spoilt(context, found),
        )


def _find_spoilt(context: Context, cases: Sequence[Pair]) -> tuple[int, ...] | None:
    """Replicas that bring Inf or NaN first to a sum of what each computes by itself.

    None where the values are no such sums.
    """
    first = min(case.key.step for case in cases)
    keys = [case.key for case in cases if case.key.step == first]
    if context.phase not in COMPUTED or any(key.replica != WHOLE for key in keys):
        return None
    values = [context.evidence.observed.get_replicas(key) for key in keys]
    bad = {
        replica
        for found in values
        for replica, value in enumerate(found)
        if not is_finite(value)
    }
    return tuple(sorted(bad)) or None


def _tell_scale(context: Context) -> str:
    """What a loss scale did: a scalar slot of no variable that changed by 2^k.

    One that stays as it is may be any number, unless it does so on one device.
    """
    step = min(case.key.step for case in context.cases)
    for info in context.infos.values():
        if info.role != "slot" or info.of or info.shape:
            continue
        before = context.evidence.get_before(step, "slot", info.path)
        after = context.evidence.observed.get(
            TraceKey(step=step, phase="slot", variable=info.path, replica=0)
        )
        if before is None or after is None:
            continue
        old, new = float(densify(before)), float(densify(after))
        due = context.evidence.reference.get(
            TraceKey(step=step, phase="slot", variable=info.path)
        )
        found = new if old != new or due is None else float(densify(due))
        if old > 1 and found not in (0, old) and _is_power(old / found):
            what = "stayed at" if old == new else f"went from {old:g} to"
            return f", and '{info.path}' {what} {new:g}"
    return ""


def _is_power(number: float) -> bool:
    """Whether it is a power of two."""
    return bool(np.frexp(number)[0] == 0.5)


def _find_by_sign(context: Context, cases: Sequence[Pair]) -> tuple[int, ...]:
    """The replica whose own gradients have the sign of every infinity of some sums.

    What overflows on its way to the sum keeps its sign, and an infinity keeps it in
    the sum. Empty unless that is one replica, and beyond chance: of replicas that all
    overflow none stands out, what overflows as it is added up has the sign of the sum
    so far, and NaN has none.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return ()
    everyone = tuple(range(context.replicas))
    left = {everyone, *(kept for kept, _ in list_subsets(context))}
    count = 0
    for case in cases:
        terms = context.find_terms(case)
        if len(terms) < context.replicas:
            return ()
        places = np.isinf(case.observed)
        count += int(np.sum(places))
        signs = np.sign(case.observed[places])
        own = np.array([term[places] for term in terms])
        left = {
            kept
            for kept in left
            if np.all(np.sign(own[list(kept)].sum(axis=0)) == signs)
        }
    found = next(iter(left), ())
    return found if len(left) == len(found) == 1 and count >= _ENOUGH else ()


def _find_by_change(context: Context, cases: Sequence[Pair]) -> tuple[int, ...]:
    """The replicas of whose own gradients one device makes Inf or NaN too.

    A sum is not finite where one of its addends is not, so together they have to spoil
    exactly the elements that are seen to be spoilt. Empty where they do not.
    """
    if not _begins_before_sum(context, cases[0].key.step):
        return ()
    made: set[int] = set()
    for case in cases:
        bad = [~np.isfinite(value) for value in _make_alone(context, case)]
        if len(bad) < context.replicas:
            return ()
        if np.any(np.any(bad, axis=0) != ~np.isfinite(case.observed)):
            return ()
        made |= {replica for replica, places in enumerate(bad) if np.any(places)}
    return tuple(sorted(made))


def _find_handed(context: Context, step: int) -> tuple[int, ...]:
    """The replicas that hand something to a sum that is not finite; none if all do."""
    if not _begins_before_sum(context, step):
        return ()
    found = context.evidence.observed.find_spoilers(step)
    return found if len(found) < context.replicas else ()


def _begins_before_sum(context: Context, step: int) -> bool:
    """Whether Inf or NaN may have come between the tapes and the sum.

    It has not where the tapes gave some themselves, and where the sum was seen and is
    finite: it is then spoilt later.
    """
    observed = context.evidence.observed
    finite = observed.find_finite(step)
    if len(finite) < context.replicas or not all(finite.values()):
        return False
    return context.phase == "reduced_gradient" or not any(
        observed.select(step=step, phase="reduced_gradient")
    )


def _make_alone(context: Context, case: Pair) -> list[Array]:
    """What one device makes of each replica's own gradients, in the rows of a case."""
    apart = context.evidence.fed.apart
    values = () if apart is None else apart.get_replicas(case.key)
    found = values or [t.get(case.key.at(0)) for t in list_alone(context)]
    return [take_rows(value, case) for value in found if value is not None]
