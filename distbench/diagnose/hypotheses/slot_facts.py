"""What is known of wrong slots, whatever their cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import (
    Row,
    drop_empty,
    fit_weights,
    leaves_nothing,
    make_error,
    predict_rows,
)
from distbench.diagnose.hypotheses.overflow import find_overflowing
from distbench.trace import SUMMED, WHOLE
from distbench.trace.numbers import Array, are_equal, densify

Due = tuple[Row, Array]
"""The error of a slot with the features (before, gradient^power), and what is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRule:
    """What a slot's rule makes of it: after = keep · before + take · what it is fed.

    Attributes:
        keep: Weight of the old value; 0 where there was none.
        take: Weight of what the slot is fed.
    """

    keep: float
    take: float


def group_by_kind(context: Context, *, by_step: bool = False) -> list[list[Numbered]]:
    """The wrong values by what the optimizer calls their slot, for a common fit.

    Slots are of one kind if their paths differ by their variable's alone. A path that
    does not hold that of its variable is a kind of its own.

    Args:
        context: The wrong values.
        by_step: Whether each step is a kind of its own, as a schedule makes it.
    """

    def name_kind(case: Pair) -> tuple[str, int]:
        kind = context.infos[case.key.variable].kind
        return kind, case.key.step if by_step else 0

    return list(context.group_cases(name_kind).values())


def group_by_gradient(
    context: Context, power: int, *, by_step: bool = False
) -> Iterator[list[Due]]:
    """For each kind of slots what its rule is fitted from; see `pair_gradients`.

    Args:
        context: The wrong values.
        power: Of the gradient in the rule.
        by_step: Whether each step has numbers of its own, as a schedule gives them.
    """
    for cases in group_by_kind(context, by_step=by_step):
        yield pair_gradients(context, cases, power)


def pair_gradients(
    context: Context, cases: Sequence[Numbered], power: int
) -> list[Due]:
    """Slots beside the gradients that they are due; none where none is known.

    Where those of some replicas overflow, what is due may have taken none of a step:
    then any numbers of a rule fit.
    """
    pairs = []
    for number, case in cases:
        if find_overflowing(context, case.key.step):
            continue
        owner = context.infos[case.key.variable].of
        gradient = context.find_due_gradient(case, owner)
        if gradient is not None and gradient.shape == case.expected.shape:
            error = make_error(number, case, find_base(case), gradient**power)
            pairs.append((error, case.expected))
    return pairs


def fit_due_rule(pairs: Sequence[Due]) -> SlotRule | None:
    """The numbers of the rule on one device; None where it does not follow from these.

    Elements that have no gradient are left out: rows that no example has may be left
    as they are, and then their old value weighs 1.
    """
    due = drop_empty([_keep_fed(row, expected) for row, expected in pairs], 0)
    weights = fit_weights(due)
    if weights is None or not leaves_nothing(due, weights):
        return None
    *keep, take = map(float, weights)
    return SlotRule(keep=keep[0] if keep else 0.0, take=take)


def fit_taken(cases: Sequence[Numbered]) -> tuple[float, dict[int, Array]] | None:
    """How many times what is new the values take, and what follows for each of them.

    With expected = β · before + new, it is β · before + c · new, which is
    c · expected + (1 - c) β · before: nothing of what the new is made of is needed.
    None where that leaves something.
    """
    rows = [make_error(n, case, case.expected, find_base(case)) for n, case in cases]
    rows = drop_empty(rows, 1)
    weights = fit_weights(rows)
    if weights is None or not leaves_nothing(rows, weights):
        return None
    errors = predict_rows(rows, weights)
    return 1 + float(weights[0]), {n: case.expected + errors[n] for n, case in cases}


def _keep_fed(row: Row, expected: Array) -> Row:
    """What is due of the elements that have a gradient."""
    fed = row.features[-1] != 0
    features = tuple(feature[fed] for feature in row.features)
    return replace(row, target=expected[fed], features=features)


def find_locals(context: Context, case: Pair, owner: str) -> tuple[Array, ...]:
    """The replicas' own gradients of a slot's variable, dense; empty if any lacks."""
    evidence = context.evidence
    for key in evidence.name_gradients(case.key, "local_gradient", owner):
        values = tuple(map(densify, evidence.observed.get_replicas(key)))
        if values and all(value.shape == case.observed.shape for value in values):
            return values
    return ()


def is_sum_unseen(context: Context) -> bool:
    """Whether no sum of gradients was seen on its way to any of the slots.

    A slot that belongs to no variable may be made of the gradients of all.
    """
    owners = {context.infos[case.key.variable].of for case in context.cases}
    summed = context.work_out("summed", lambda: _list_summed(context))
    return not (summed if "" in owners else summed & owners)


def _list_summed(context: Context) -> set[str]:
    """Variables of which a sum was seen."""
    return {
        key.variable
        for trace in (context.evidence.observed, context.evidence.reference)
        for phase in SUMMED
        for key, _ in trace.select(phase=phase)
    }


def keeps_gradients(context: Context) -> bool:
    """Whether all that is wrong follows from gradients of others: slots, and the like.

    Variables of the model may do so too, where a program updates by hand.
    """
    wrong = {case.key.variable for case in context.cases}
    return context.phase == "slot" or wrong <= set(context.evidence.subject.kept)


def lead_a_late_step(context: Context) -> bool:
    """Whether slots that stay lead a step of their variables, and hold nothing else.

    Of a slot that keeps nothing of its old value, as without a momentum, to stay and to
    take the gradient of the step before are the same, from one device's state. If its
    turn came in other steps, its variable would stay as well, or would be right.
    """
    later = [case for case in context.cases if case.key.step > 0]
    return (
        bool(later)
        and any(_keep_nothing(context, power) for power in (1, 2))
        and all(_moves_otherwise(context, case) for case in later)
    )


def _keep_nothing(context: Context, power: int) -> bool:
    """Whether on one device the slots are a multiple of gradient^power alone."""
    rules = [fit_due_rule(pairs) for pairs in group_by_gradient(context, power)]
    return all(rule is not None and abs(rule.keep) <= SAME for rule in rules)


def _moves_otherwise(context: Context, case: Pair) -> bool:
    """Whether a slot's variable takes a step, and another one than on one device."""
    evidence, owner = context.evidence, context.infos[case.key.variable].of
    key = replace(case.key, phase="variable", variable=owner)
    after, due = evidence.observed.get(key), evidence.reference.get(key.at(WHOLE))
    held = (after, due, evidence.get_held(key))
    known = [densify(value) for value in held if value is not None]
    if len(known) < 3:
        return False
    return not (are_equal(known[0], known[1]) or are_equal(known[0], known[2]))
