"""State that follows variables, as moving averages and slow weights do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import has_gradient
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import Row, fit_weights, leaves_nothing
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.keepers import find_held
from distbench.diagnose.hypotheses.late import LATE_READ
from distbench.trace import WHOLE, Phase, TraceKey, VariableInfo
from distbench.trace.numbers import Array, densify

_Find = Callable[[Pair], Array]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Way:
    """A variable's way to another one.

    Attributes:
        find_end: Where the other one is.
        find_other: Where it is before the step, if it goes to what that left, or after.
        is_early: Whether it goes to where that is before the step.
        left: Share of the way that one device leaves in each step, 0 to 1.
        keeper: The other one, if it holds that on the cluster alone.
    """

    find_end: _Find
    find_other: _Find
    is_early: bool
    left: Mapping[int, float]
    keeper: VariableInfo | None = None

    def go(self, case: Pair, end: Array, count: int = 1) -> Array:
        """Where it comes to on its way to an end, gone so many times."""
        return end + self.left[case.key.step] ** count * (find_base(case) - end)


def explain_by_repeated_average(context: Context) -> Iterator[Hypothesis]:
    """A variable, or a slot, goes k times a part of the way to another variable.

    One device tells the part: expected - before = (1 - β) (other - before). After k
    times β^k of the way is left. The other one is as it was before the step, or as the
    step left it.
    """
    ways = _find_ways(context)
    for count in sorted({*range(2, 9), context.replicas}) if ways else ():
        predicted: dict[int, Array] = {}
        for number, case in context.list_cases():
            if way := ways.get(case.key.variable):
                predicted[number] = way.go(case, way.find_end(case), count)
        yield Hypothesis(
            code="slot-repeated" if context.phase == "slot" else "update-repeated",
            predicted=predicted,
            detail=f"it goes {count} times in one step its part of the way to another "
            "variable",
            ratio=float(count),
        )


def explain_by_other_turn(context: Context) -> Iterator[Hypothesis]:
    """A variable goes to where another one is before its step, and not after it.

    Or the other way round, where one device goes to where it was. Of what is not there
    on one device another cause tells.
    """
    ways = {p: way for p, way in _find_ways(context).items() if way.keeper is None}
    for is_early in {way.is_early for way in ways.values()}:
        turns = ("before", "after") if is_early else ("after", "before")
        predicted = {}
        for number, case in context.list_cases():
            way = ways.get(case.key.variable)
            if way is not None and way.is_early == is_early:
                predicted[number] = way.go(case, way.find_other(case))
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted=predicted,
            detail="it goes its part of the way to another variable as that is "
            f"{turns[1]} the step, and on one device as it is {turns[0]} it",
        )


def explain_by_kept_end(context: Context) -> Iterator[Hypothesis]:
    """A variable goes to what a buffer held before the step, and is filled by it.

    On one device nothing is in the buffer, and the variable goes to what is put there.
    """
    predicted: dict[int, Array] = {}
    names: dict[str, None] = {}
    ways = _find_ways(context)
    for number, case in context.list_cases():
        way = ways.get(case.key.variable)
        if way is None or way.keeper is None:
            continue
        held = find_held(context.evidence, way.keeper, case.key)
        if held is not None:
            predicted[number] = way.go(case, held)
            names[way.keeper.path] = None
    if predicted:
        yield Hypothesis(
            code=LATE_READ,
            predicted=predicted,
            detail=f"it goes its part of the way to what '{min(names)}' held before "
            "the step, which here, and not on one device, keeps what it should go to "
            "for the next one",
            advice="Write the buffer before it is read. A delay on purpose is for "
            "--expect.",
        )


def _find_ways(context: Context) -> dict[str, _Way]:
    return {
        path: way
        for path, cases in _list_followers(context, "slot", "variable")
        if (way := _find_way(context, path, cases)) is not None
    }


def _list_followers(
    context: Context, *phases: Phase
) -> Iterator[tuple[str, Sequence[Numbered]]]:
    """Wrong state without a gradient, each with its wrong values.

    Args:
        context: The wrong values.
        phases: Which kinds of state are asked about.
    """
    if context.phase in phases:
        for path, cases in context.group_cases(lambda case: case.key.variable).items():
            if not has_gradient(context.evidence, path):
                yield path, cases


def _find_way(context: Context, path: str, cases: Sequence[Numbered]) -> _Way | None:
    """The way that explains all that one device does to a variable.

    Its part is one for all steps, or one for each: averages that are to start quickly
    go a larger part of the way at first.
    """
    shape = context.infos[path].shape
    for other, info in context.infos.items():
        if info.role != "variable" or info.shape != shape or other == path:
            continue
        ends = _list_ends(context, other)
        for find_end, find_other in (ends, ends[::-1]):
            if left := _fit_left(cases, find_end):
                is_early = find_end is ends[0]
                is_kept = not is_early and _is_kept(context, other, cases)
                return _Way(
                    find_end=find_end,
                    find_other=find_other,
                    is_early=is_early,
                    left=left,
                    keeper=info if is_kept else None,
                )
    return None


def _is_kept(context: Context, other: str, cases: Sequence[Numbered]) -> bool:
    """Whether one device leaves something else in a buffer than where it goes to."""
    if has_gradient(context.evidence, other):
        return False
    reference = context.evidence.reference
    ends = {
        case.key: value
        for _, case in cases
        if (value := reference.get(replace(case.key, variable=other, replica=WHOLE)))
        is not None
    }
    is_known = len(ends) == len(cases)
    return not (is_known and _fit_left(cases, lambda case: densify(ends[case.key])))


def leave_out_followers(context: Context) -> Context:
    """Without averages that go their way rightly, to a variable that is itself wrong.

    They are wrong with it, and nothing has to be said of them.
    """
    wrong = {case.key: case for _, case in context.list_cases()}
    right_ways = {
        path
        for path, cases in _list_followers(context, "variable")
        if _goes_rightly(context, path, cases, wrong)
    }
    return context.select(
        tuple(case for case in context.cases if case.key.variable not in right_ways)
    )


def _goes_rightly(
    context: Context,
    path: str,
    cases: Sequence[Numbered],
    wrong: Mapping[TraceKey, Pair],
) -> bool:
    """Whether what a variable leaves of its way is what it leaves on one device.

    Args:
        context: The wrong values.
        path: Of the variable.
        cases: Its wrong values.
        wrong: All wrong values by key.
    """
    shape = context.infos[path].shape
    for other in {key.variable for key in wrong} - {path}:
        if context.infos[other].shape != shape:
            continue
        _, find_end = _list_ends(context, other)

        def find_due(case: Pair, other: str = other, end: _Find = find_end) -> Array:
            led = wrong.get(replace(case.key, variable=other))
            return end(case) if led is None else led.expected

        left = _fit_left(cases, find_due)
        way = _Way(find_end=find_due, find_other=find_end, is_early=False, left=left)
        if left and all(
            context.matches(case, way.go(case, find_end(case))) for _, case in cases
        ):
            return True
    return False


def _fit_left(cases: Sequence[Numbered], find_end: _Find) -> dict[int, float]:
    """What one device leaves of a way to some end, by step.

    Empty where no part of it explains all.
    """
    rows = [
        Row(
            number=number,
            target=case.expected - find_base(case),
            features=(find_end(case) - find_base(case),),
        )
        for number, case in cases
    ]
    steps = {number: case.key.step for number, case in cases}
    if part := _fit_part(rows):
        return dict.fromkeys(steps.values(), 1 - part)
    parts = {
        step: _fit_part([row for row in rows if steps[row.number] == step])
        for step in dict.fromkeys(steps.values())
    }
    known = {step: 1 - part for step, part in parts.items() if part is not None}
    return known if len(known) == len(parts) else {}


def _fit_part(rows: Sequence[Row]) -> float | None:
    share = fit_weights(rows)
    if share is None or not 0 < share[0] < 1 or not leaves_nothing(rows, share):
        return None
    return float(share[0])


def _list_ends(context: Context, variable: str) -> tuple[_Find, _Find]:
    """Where another variable is: before the step of a case, and after it."""
    evidence = context.evidence

    def find_before(case: Pair) -> Array:
        value = evidence.get_before(case.key.step, "variable", variable)
        return find_base(case) if value is None else densify(value)

    def find_after(case: Pair) -> Array:
        key = replace(case.key, phase="variable", variable=variable)
        value = evidence.observed.get(key)
        return find_base(case) if value is None else densify(value)

    return find_before, find_after
