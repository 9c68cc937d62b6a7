"""Averages that go another part of their way to what they follow, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.compare.state.leading import has_gradient, is_trained
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import (
    Row,
    fit_weights,
    leaves_nothing,
    make_error,
    predict_cases,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import UPDATED, Phase
from distbench.trace.numbers import Array, densify

_FED: tuple[Phase, ...] = ("applied_gradient", "reduced_gradient")
"""Where gradients were put in, the last one first."""
_Follower = tuple[int, Pair, str]
"""A wrong value with its number, and the variable that it follows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What parts of their way some averages go.

    Attributes:
        due: On one device, by step.
        gone: On the cluster.
        predicted: What the averages are then, by number of the case.
    """

    due: dict[int, float]
    gone: dict[int, float]
    predicted: dict[int, Array]

    @property
    def takes_other_turns(self) -> bool:
        """Whether they move in a step where they stand still elsewhere."""
        return any((self.due[s] == 0) != (self.gone[s] == 0) for s in self.due)


def explain_by_other_part(context: Context) -> Iterator[Hypothesis]:
    """Averages go another part of their way to their variables, one in each step.

    With expected = before + w (end - before) the error is (w' - w) (end - before). Both
    are the same for all averages of a kind, such as 1 / (1 + count of steps), and no
    less than 0 nor more than 1. Where w is 0, one device leaves them as they are.
    """
    if context.phase not in UPDATED or context.spares_replicas:
        return
    found = [
        parts
        for followers in _group_followers(context)
        if (parts := _find_parts(context, followers)) is not None
    ]
    predicted = {n: value for parts in found for n, value in parts.predicted.items()}
    if predicted:
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted=predicted,
            detail=_describe(found[0]),
        )


def _describe(parts: _Parts) -> str:
    due, gone = (
        ", ".join(f"{part:.4g}" for part in values.values())
        for values in (parts.due, parts.gone)
    )
    steps = f"step{'s' * (len(parts.due) > 1)} {', '.join(map(str, parts.due))}"
    why = ": its turn comes in other steps" * parts.takes_other_turns
    return (
        f"of its way to the variable that it follows it goes {gone} in {steps}, and "
        f"{due} on one device{why}"
    )


def _group_followers(context: Context) -> list[list[_Follower]]:
    """Wrong state without a gradient: slots by kind, and what is no slot as one."""
    found: dict[str, list[_Follower]] = {}
    for path, cases in context.group_cases(lambda case: case.key.variable).items():
        if has_gradient(context.evidence, path):
            continue
        info = context.infos[path]
        followed = info.of or _find_followed(context, path, cases)
        if followed:
            kind = info.kind if info.of else ""
            group = found.setdefault(kind, [])
            group += [(number, case, followed) for number, case in cases]
    return list(found.values())


def _find_followed(context: Context, path: str, cases: Sequence[Numbered]) -> str:
    """The one trained variable of the same shape; of several that which explains it."""
    shape = context.infos[path].shape
    known = [
        other
        for other, info in context.infos.items()
        if other != path and info.role == "variable" and info.shape == shape
        if is_trained(context.evidence, other)
    ]
    if len(known) == 1:
        return known[0]
    for other in known:
        followers = [(number, case, other) for number, case in cases]
        if any(
            (parts := _fit_parts(context, followers, is_early=is_early)) is not None
            and any(parts.due.values())
            for is_early in (False, True)
        ):
            return other
    return ""


def _find_parts(context: Context, followers: Sequence[_Follower]) -> _Parts | None:
    """What all averages of a kind have in common; None if nothing explains them.

    They go to where their variables are before the step, or to where it leaves them.
    """
    for is_early in (False, True):
        parts = _fit_parts(context, followers, is_early=is_early)
        if parts is not None:
            return parts
    return None


def _fit_parts(
    context: Context, followers: Sequence[_Follower], *, is_early: bool
) -> _Parts | None:
    due: dict[int, float] = {}
    gone: dict[int, float] = {}
    predicted: dict[int, Array] = {}
    for step in sorted({case.key.step for _, case, _ in followers}):
        wanted: list[Row] = []
        errors: list[Row] = []
        for number, case, followed in followers:
            if case.key.step != step:
                continue
            end = _find_end(context, case, followed, is_early=is_early)
            if end is None or end.shape != case.expected.shape:
                return None
            base = find_base(case)
            target = case.expected - base
            wanted.append(Row(number=number, target=target, features=(end - base,)))
            errors.append(make_error(number, case, end - base))
        part, more = _fit_part(wanted), _fit_part(errors)
        if part is None or more is None:
            return None
        if not (_is_part(part) and _is_part(part + more)):
            return None
        due[step], gone[step] = _round(part), _round(part + more)
        predicted |= predict_cases(context.cases, errors, np.array([more]))
    return _Parts(due=due, gone=gone, predicted=predicted)


def _round(share: float) -> float:
    """A part of a way; of 0 rounding leaves something."""
    return 0.0 if abs(share) <= SAME else share


def _is_part(share: float) -> bool:
    return -SAME <= share <= 1 + SAME


def _fit_part(rows: Sequence[Row]) -> float | None:
    """The one share of all ways; None where that leaves something."""
    if not any(np.any(row.target) for row in rows):
        return 0.0
    share = fit_weights(rows)
    if share is None or not leaves_nothing(rows, share):
        return None
    return float(share[0])


def _find_end(
    context: Context, case: Pair, followed: str, *, is_early: bool
) -> Array | None:
    """Where the variable is that an average follows, before a step or after it.

    After it, it is where one device's update leaves it, as far as that is known: what a
    cluster sets to the average itself says nothing of where the average goes.
    """
    evidence = context.evidence
    if is_early:
        value = evidence.get_before(case.key.step, "variable", followed)
        return None if value is None else densify(value)
    key = replace(case.key, phase="variable", variable=followed)
    replays = [evidence.fed.replays.get(phase) for phase in _FED]
    for trace in (*replays, evidence.observed):
        value = None if trace is None else trace.get(key)
        if value is not None:
            return densify(value)
    return None
