"""Sums that nobody saw, told by what one device makes of them.

Who updates by hand shows none, and who divides a sum by its norm shows what became of
it. Whatever the rule is that takes a sum: one device was fed with several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.cases import find_base, take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.hypotheses.decay import may_be_decayed
from distbench.diagnose.hypotheses.overflow import find_overflowing
from distbench.diagnose.hypotheses.slot_facts import keeps_gradients
from distbench.diagnose.hypotheses.whole_updates import Find, is_whole, look_up
from distbench.diagnose.names import name_replicas
from distbench.fed import get_factor
from distbench.trace import Phase, Trace
from distbench.trace.numbers import Array, measure_size

_ALONE = "slot-from-local-gradient"
_TAKING: tuple[Phase, ...] = ("reduced_gradient", "slot", "variable")
"""Phases in which something may be made of a sum that nobody saw."""


def explain_by_mean(context: Context) -> Iterator[Hypothesis]:
    """What follows from the sum of all gradients, divided by N.

    Of a rule that is linear the mean of what each replica makes of its own gradient is
    the same. It is the mean that users take, so it is asked before what a rule keeps.
    """
    # One replica's mean is its sum.
    if (
        context.replicas > 1
        and context.phase in _TAKING
        and not context.is_right_elsewhere
    ):
        for trace in context.evidence.fed.sums:
            if _is_plain_mean(trace):
                mean = _foretell(context, trace)
                yield _add_decays(context, mean)
                if context.phase == "reduced_gradient":
                    yield _divide(context, mean)


def _add_decays(context: Context, mean: Hypothesis) -> Hypothesis:
    """With what else it may be, where only the direction of the step shows."""
    if not may_be_decayed(context):
        return mean
    words = f", or of the sum beside {context.replicas} times the weight decay"
    return replace(mean, detail=mean.detail + words)


def _divide(context: Context, mean: Hypothesis) -> Hypothesis:
    """The same divided once more, as by whoever averages what holds a mean."""
    n = context.replicas
    return replace(
        mean,
        predicted={number: value / n for number, value in mean.predicted.items()},
        detail=f"{mean.detail}, and by N = {n} once more",
        ratio=1 / n,
    )


def explain_by_sum(context: Context) -> Iterator[Hypothesis]:
    """What follows from another sum than that of all gradients.

    One in a narrow dtype is told where what follows has all of its digits: it has far
    more than the sum has, so none fits by chance.
    """
    if context.phase not in _TAKING:
        return
    sums = context.evidence.fed.sums
    # One replica's own gradient is all that there is to add up.
    own = find_own(context) if sums and context.replicas > 1 else None
    if own is not None:
        yield Hypothesis(
            code=_ALONE if _is_alone(context, own) else "missing-reduction",
            predicted=_take(context, own),
            detail="it is what one device makes of each replica's own gradient",
            phase=_place(context, own),
        )
    # What the whole sum leads to is wrong by something else than a sum.
    whole = find_sum(context, range(context.replicas))
    follows = {} if whole is None else find_followers(context, whole)
    for trace in sums:
        # One of factor 0 is asked to read off what a step is made of.
        if get_factor(trace) != 0 and not _is_plain_mean(trace):
            told = _foretell(context, trace)
            predicted = {n: v for n, v in told.predicted.items() if n not in follows}
            yield replace(told, predicted=predicted)
    yield from explain_by_parts_of_owners(context)


def explain_by_parts_of_owners(context: Context) -> Iterator[Hypothesis]:
    """Each part of the state follows from one replica's own gradient.

    Replicas that share out what is updated have to sum for the part of each. Elements
    stand one after the other, and so do the replicas that they are of: what picks the
    largest of several values leaves them in no order.
    """
    alone = list_alone(context)
    if context.phase != "variable" or not 1 < context.replicas == len(alone):
        return
    predicted: dict[int, Array] = {}
    owners: set[int] = set()
    for number, case in context.list_cases():
        own = [trace.get(case.key.at(0)) for trace in alone]
        known = [take_rows(v, case) for v in own if v is not None]
        if len(known) < context.replicas:
            continue
        values = np.stack(known)
        nearest = np.argmin(np.abs(values - case.observed), axis=0)
        made = np.take_along_axis(values, nearest[np.newaxis], axis=0)[0]
        parts = nearest[np.ptp(values, axis=0) > 0]
        if context.matches(case, made) and np.all(np.diff(parts) >= 0):
            predicted[number] = made
            owners |= set(parts.tolist())
    if len(owners) > 1:
        yield Hypothesis(
            code="missing-reduction",
            predicted=predicted,
            detail="each part of it is what one device makes of the own gradient of "
            f"one of {name_replicas(owners)}, and none is made of their sum",
        )


def find_own(context: Context, factor: float = 1.0) -> Find | None:
    """What one device makes of each replica's own gradient, as that of the replica.

    Args:
        context: The wrong values.
        factor: What these gradients are multiplied by.
    """
    apart = context.evidence.fed.apart
    if apart is not None and factor == 1:
        return apart.get

    def join() -> Find | None:
        alone = list_alone(context, factor)
        if len(alone) < context.replicas:
            return None
        values = {
            key.at(replica): value
            for replica, trace in enumerate(alone)
            for key, value in trace.select(replica=0)
        }
        return values.get

    return context.work_out(("own steps", factor), join)


def find_sum(context: Context, kept: Sequence[int]) -> Find | None:
    """What one device makes of the sum of some replicas; None where nobody tried."""
    for trace in context.evidence.fed.sums:
        is_plain = get_factor(trace) == 1 and not trace.notes["narrow"]
        if is_plain and sorted(_list_kept(trace)) == sorted(kept):
            return look_up(trace)
    return None


def explain_by_repeated_sum(context: Context) -> Iterator[Hypothesis]:
    """What was summed is right, and what is made of it is summed once more.

    A norm of the sum, whose squares are added up over the replicas though each has all
    of them, is √N times too large. One device says what comes of it.
    """
    again = context.evidence.fed.again
    if again is None or context.phase not in _TAKING:
        return
    n = context.replicas
    yield Hypothesis(
        code="double-reduction",
        predicted=_take(context, look_up(again)),
        detail="what is made of the sum is added up over the replicas once more, as "
        "the squares of a norm may be: each of them has all of it, so it counts "
        f"N = {n} times",
        phase=_place(context, look_up(again)),
        of_due=True,
    )


def find_followers(context: Context, led: Find) -> dict[int, Array]:
    """The wrong values that are what one device makes of a sum."""
    return {
        number: value
        for number, value in _take(context, led).items()
        if context.matches(context.cases[number], value)
    }


def _is_plain_mean(trace: Trace) -> bool:
    return 0 < get_factor(trace) < 1 and not trace.notes["narrow"]


def _list_kept(trace: Trace) -> Sequence[int]:
    return cast(Sequence[int], trace.notes["kept"])


def _foretell(context: Context, trace: Trace) -> Hypothesis:
    """That the step took the sum that a trace was fed with."""
    factor = get_factor(trace)
    led = look_up(trace)
    predicted = (find_followers if trace.notes["narrow"] else _take)(context, led)
    code, words, lost = _name(context, trace)
    return Hypothesis(
        code=code,
        predicted=predicted,
        detail=f"it is what one device makes of {words}",
        phase=_place(context, led),
        replicas=lost or None,
        ratio=None if factor == 1 or code == "lower-precision" else factor,
    )


def _place(context: Context, led: Find) -> Phase:
    """Where to report a sum: what slots take, the variable mostly does as well."""
    if context.phase != "slot":
        return context.phase
    return "slot" if _is_alone(context, led) else "variable"


def _is_alone(context: Context, led: Find) -> bool:
    """Whether state that is kept of gradients took a sum, and no variable did.

    As where a program makes a sum for each of them.
    """
    return keeps_gradients(context) and is_whole(context, led) is False


def list_alone(context: Context, factor: float = 1.0) -> list[Trace]:
    """What one device makes of each replica's own gradients, as that of replica 0.

    In the order of the replicas, of those of which it was tried.

    Args:
        context: The wrong values.
        factor: What these gradients are multiplied by.
    """
    return [
        trace
        for replica in range(context.replicas)
        for trace in context.evidence.fed.sums
        if list(_list_kept(trace)) == [replica] and get_factor(trace) == factor
    ]


def explain_by_own_steps(context: Context) -> Iterator[Hypothesis]:
    """Each replica makes a step of its own gradient, and these steps are put together.

    What the step would be, one device says; a replica may also take N times its own
    gradient for the sum. Signs are outvoted: where all steps are as long, the sign of
    their sum is what most replicas want. Beside a decay that all make alike, that is
    the median.
    """
    if context.phase != "variable":
        return
    n = context.replicas
    for factor, of_what in ((1.0, "its own gradient"), (n, "N times its own gradient")):
        alone = list_alone(context, factor)
        steps = {
            number: [
                take_rows(value, case) - find_base(case)
                for trace in alone
                if (value := trace.get(case.key.at(0))) is not None
            ]
            for number, case in context.list_cases()
            if _is_everywhere(context, case)
        }
        for words, put_together in _TOGETHER:
            yield Hypothesis(
                code=NONLINEAR,
                predicted={
                    number: find_base(context.cases[number]) + put_together(own)
                    for number, own in steps.items()
                    if len(own) == n
                },
                detail=f"every replica makes of {of_what} the step that one device "
                f"makes of the sum, and these steps {words}",
            )


def _is_everywhere(context: Context, case: Pair) -> bool:
    """Whether each copy of state is wrong: what is put together all replicas get."""
    wrong = {c.key for c in context.cases}
    keys = (case.key.at(replica) for replica in range(context.replicas))
    trace = context.evidence.observed
    return all(key in wrong for key in keys if trace.get(key) is not None)


_TOGETHER: tuple[tuple[str, Callable[[list[Array]], Array]], ...] = (
    ("are added up", lambda own: np.asarray(np.sum(own, axis=0))),
    ("are averaged", lambda own: np.asarray(np.mean(own, axis=0))),
    (
        "are outvoted, element by element",
        lambda own: np.sign(np.sum(np.sign(own), axis=0)) * np.max(np.abs(own)),
    ),
    (
        "are outvoted by their median, element by element",
        lambda own: np.asarray(np.median(own, axis=0)),
    ),
)
"""What may be made of the replicas' own steps."""


def _name(context: Context, trace: Trace) -> tuple[str, str, tuple[int, ...]]:
    """Code and words of a sum, and the replicas that it lacks."""
    n, narrow = context.replicas, trace.notes["narrow"]
    kept = _list_kept(trace)
    lost = tuple(r for r in range(n) if r not in kept)
    factor = get_factor(trace)
    if lost:
        words = f"a sum that lacks the gradient of {name_replicas(lost)}"
        times = "" if factor == 1 else f", times N = {n}"
        if len(kept) == 1 and _is_alone(context, look_up(trace)):
            return _ALONE, f"the gradient of {name_replicas(kept)}{times}", ()
        return "replica-dropped", f"{words}{times}", lost
    if factor > 1:
        return "double-reduction", f"the sum times N = {n}", ()
    if narrow and (factor == 1 or _is_harmless(context, factor)):
        what = "sum" if factor == 1 else "mean"
        return "lower-precision", f"a {what} of the gradients in {narrow}", ()
    return "mean-instead-of-sum", f"the sum divided by N = {n}", ()


def _is_harmless(context: Context, factor: float) -> bool:
    """Whether a sum times a factor leads to what is due, as before a clip."""
    for trace in context.evidence.fed.sums:
        if trace.notes["factor"] == factor and not trace.notes["narrow"]:
            found = _take(context, look_up(trace))
            return all(
                number in found
                and 2 * measure_size(found[number] - case.expected)
                <= (1 - factor) * measure_size(case.expected - case.base)
                for number, case in context.list_cases()
            )
    return False


def _take(context: Context, led: Find) -> dict[int, Array]:
    """The state that one device comes to, for each wrong value of which it is known.

    Where some replicas' gradients overflow, any sum without them is as good as another.
    """
    return {
        number: take_rows(value, case)
        for number, case in context.list_cases()
        if not find_overflowing(context, case.key.step)
        and (value := led(case.key)) is not None
    }
