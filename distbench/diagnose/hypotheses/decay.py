"""A weight decay that is applied too often, too rarely, or where none is due."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import fit_ratio
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import (
    Row,
    fit_weights,
    leaves_nothing,
    list_independent,
    make_error,
    pick_features,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.update import fit_feature
from distbench.trace import WHOLE
from distbench.trace.numbers import Array, densify, measure_size

_NONE = 1e-3
"""A decay that is no larger a share of what is wrong is that of rounding: none."""
_SAME = 1e-2
"""Two fitted factors that are no farther apart are taken for one number."""


def explain_by_decay(context: Context) -> Iterator[Hypothesis]:
    """What is too much or too little is proportional to the variable itself.

    Either to what it was before the step, or to what the step made of it: who decays
    by hand once the optimizer is done shrinks the step as well.
    """
    if context.phase != "variable":
        return
    before = fit_feature(context, find_base)
    after = _fit_decay_after(context)
    if before is None and after is None:
        return
    due = fit_due_decay(context, find_base)
    if before is not None:
        weight, predicted = before
        yield name_decay(weight, due, predicted)
    if after is not None:
        weight, predicted = after
        kept = 1 if due is None else 1 + due
        yield name_decay(weight * kept, due, predicted)


def explain_by_decayed_replay(context: Context) -> Iterator[Hypothesis]:
    """What one device makes of variables that are N times as large.

    Whatever a rule makes of a decay, it is of N decays then: where the decay is a part
    of the gradient, behind a momentum or a norm.
    """
    if context.phase in ("slot", "variable"):
        for times, predicted in _list_decayed(context):
            yield Hypothesis(
                code="weight-decay-repeated",
                predicted=predicted,
                detail=f"the weight decay counts {times:.0f} times in what the rule "
                "makes of it: it is what one device makes of variables that are as "
                "many times as large",
                ratio=times,
                phase="variable",
            )


def may_be_decayed(context: Context) -> bool:
    """Whether N decays explain all of what is wrong.

    A trust ratio asks for the direction alone: an N-th of the gradient beside a decay
    has that of the gradient beside N decays.
    """
    return any(
        len(predicted) == len(context.cases) and context.match_all(predicted)
        for _, predicted in _list_decayed(context)
    )


def _list_decayed(context: Context) -> Iterator[tuple[float, dict[int, Array]]]:
    """How often a decay counts, and what one device says that this leads to.

    A trust ratio, which makes the step as long as a share of the variable, makes it N
    times as long where that is N times as large, and so it is divided. What larger
    variables leave alone has no decay in it: halved state beside the whole gradient is
    nothing but state that takes half the gradient.
    """
    if not _is_led_by_variables(context):
        return
    for trace in context.evidence.fed.decayed:
        times = float(str(trace.notes["times"]))
        found = context.read_state(trace)
        for length in (1 / times,) if trace.notes["whole"] else (1.0, 1 / times):
            predicted = {}
            for number, value in found.items():
                base = find_base(context.cases[number])
                predicted[number] = base + length * (value - base)
            if predicted and not _is_longer(context, predicted):
                yield times, predicted


def _is_led_by_variables(context: Context) -> bool:
    """Whether larger variables, and all else as it was, move any value."""
    return any(
        not context.are_near(case := context.cases[number], value, case.expected)
        for trace in context.evidence.fed.decayed
        if not trace.notes["whole"]
        for number, value in context.read_state(trace).items()
    )


def _is_longer(context: Context, predicted: Mapping[int, Array]) -> bool:
    """Whether all steps are the right ones but for their length: no decay shows."""
    for number, value in predicted.items():
        case = context.cases[number]
        base = find_base(case)
        fit = fit_ratio(value - base, case.expected - base)
        length = 1.0 if fit is None else fit.ratio
        if not context.are_near(case, value, base + length * (case.expected - base)):
            return False
    return True


def _fit_decay_after(context: Context) -> tuple[float, dict[int, Array]] | None:
    """Fit observed = k expected, if that is told from a step of another length.

    Of variables that were 0 before the step it is the same: nothing is claimed.
    """
    rows = [
        make_error(number, case, find_base(case), case.expected - find_base(case))
        for number, case in context.list_cases()
    ]
    weights = fit_weights(rows)
    if weights is None:
        return None
    of_start, of_step = map(float, weights)
    if abs(of_start - of_step) > _SAME * abs(of_start) or not -0.5 < of_start < 1:
        return None
    fitted = fit_feature(context, lambda case: case.expected)
    # A constraint shrinks a variable too, in each step as much as it takes.
    return None if fitted is None or not _holds_throughout(rows, fitted[0]) else fitted


def _holds_throughout(rows: Sequence[Row], weight: float) -> bool:
    for row in rows:
        rest = row.target - weight * (row.features[0] + row.features[1])
        if measure_size(rest) > 2 * _SAME * measure_size(row.target):
            return False
    return True


def name_decay(
    weight: float,
    due: float | None,
    predicted: Mapping[int, Array],
    of: str = "the variable",
    what: str = "the weight decay",
    in_turn: bool = True,
) -> Hypothesis:
    """What another share of the variable, or of its sign, is called.

    Args:
        weight: Share of it that is there beside what is due.
        due: Share of it in the right step, negative; None if not known.
        predicted: What that explains.
        of: What it is a share of.
        what: Names the decay.
        in_turn: Whether several decays in turn come to less than one of their sum.
    """
    ratio: float | None = None
    if due is not None and abs(due) <= _NONE * abs(weight):
        code = "hyperparameter-differs"
        words = f"it decays by {-weight:.3g} times {of}, on one device not"
    elif due is not None:
        seen = due + weight
        ratio = _count_decays(due, seen) if in_turn else seen / due
        count = round(ratio)
        if abs(ratio) < _SAME:
            code, words = "weight-decay-missing", f"{what} is left out"
        elif count >= 2 and _is_near(ratio, count):
            code = "weight-decay-repeated"
            words = f"{what} is applied {count} times in one step"
        else:
            code = "hyperparameter-differs"
            words = f"{what} is {ratio:.6g} times what it should be"
    elif weight > 0:
        code = "weight-decay-missing"
        words = f"it lacks a decay of {weight:.3g} times {of}: there is none, "
        words += "or one at another rate"
    else:
        code = "weight-decay-repeated"
        words = f"it decays by {-weight:.3g} times {of} more than it should: "
        words += "several times, or at another rate"
    return Hypothesis(code=code, predicted=predicted, detail=words, ratio=ratio)


def _count_decays(due: float, seen: float) -> float:
    """How many decays change a variable by a share, if one changes it by what is due.

    k times the rate leave 1 - k d, k decays one after the other (1 - d)^k.
    """
    at_once = seen / due
    if _is_near(at_once, round(at_once)) or min(due, seen) <= -1:
        return at_once
    in_turn = math.log1p(seen) / math.log1p(due)
    return in_turn if _is_near(in_turn, round(in_turn)) else at_once


def _is_near(times: float, count: int) -> bool:
    return abs(times - count) < 0.02 * count


def fit_due_decay(context: Context, find: Callable[[Pair], Array]) -> float | None:
    """Share of something by which the right step shrinks a variable; None if not known.

    The right step is fitted by that, the gradient, each slot of the variable and the
    variable itself; only a fit that leaves nothing is believed.

    Args:
        context: The wrong values.
        find: What it is a share of; elements where that is 0 tell nothing.
    """
    rows = []
    for number, case in context.list_cases():
        gradient = context.find_gradient(case)
        base = find_base(case)
        if gradient is None or gradient.shape != base.shape:
            return None
        features = [find(case), gradient]
        features += [s for s in _find_slots(context, case) if s.shape == base.shape]
        told = features[0] != 0
        parts = tuple(feature[told] for feature in (*features, base))
        target = (case.expected - case.base)[told]
        rows.append(Row(number=number, target=target, features=parts))
    if not rows or len({len(row.features) for row in rows}) > 1:
        return None
    # Without slots that the features before them determine.
    kept = list_independent(rows, first=2)
    rows = [pick_features(row, kept) for row in rows]
    weights = fit_weights(rows)
    if weights is None:
        return None
    return float(weights[0]) if leaves_nothing(rows, weights) else None


def _find_slots(context: Context, case: Pair) -> list[Array]:
    """Slots of the variable after the right step."""
    found = []
    for info in context.infos.values():
        if info.role == "slot" and info.of == case.key.variable:
            key = replace(case.key, phase="slot", variable=info.path)
            replay = context.evidence.fed.replays.get("reduced_gradient")
            value = None if replay is None else replay.get(key)
            if value is None:
                value = context.evidence.reference.get(key.at(WHOLE))
            if value is not None:
                found.append(densify(value))
    return found
