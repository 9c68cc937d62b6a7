"""The numbers by which a slot keeps a statistic of gradients on one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.kept_statistics import Statistic
from distbench.diagnose.hypotheses.slot_facts import SlotRule
from distbench.trace import WHOLE, TraceKey, Value
from distbench.trace.numbers import Array, densify, measure_size

_ALL = 1e-5
"""How much of the right value the slot's rule may leave; more is another rule."""

Rules = Mapping[int, SlotRule]
"""The rule of a slot in each step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    """A slot on one device in a step.

    Attributes:
        step: The step.
        made: The statistic of the global batch's gradients.
        before: The slot before the step.
        after: The slot after it.
    """

    step: int
    made: Array
    before: Array
    after: Array


def fit_rules(context: Context, path: str, statistic: Statistic) -> Rules:
    """The numbers with which a slot keeps a statistic; empty if it does not.

    They are the same in all steps, or in all but the first, which has nothing to keep.
    Else, as where an average is corrected by the number of steps, each step has its
    own, which its elements have to tell.
    """
    kept = _list_kept(context, path, statistic)
    rule = _fit_rule(kept)
    if rule is not None:
        return {one.step: rule for one in kept}
    return _fit_after_start(kept) or _fit_by_step(kept)


def _list_kept(context: Context, path: str, statistic: Statistic) -> list[_Kept]:
    """All steps; none where the statistic has another shape."""
    evidence = context.evidence
    kept = []
    for step in range(evidence.reference.steps):
        before = evidence.get_before(step, context.phase, path)
        key = TraceKey(step=step, phase=context.phase, variable=path, replica=WHOLE)
        after = evidence.reference.get(key)
        found = take_gradients(context, path, step, WHOLE, statistic)
        if before is None or after is None or not found:
            continue
        made = statistic.measure(found)
        if made.shape != densify(after).shape:
            return []
        one = _Kept(
            step=step,
            made=made.ravel(),
            before=densify(before).ravel(),
            after=densify(after).ravel(),
        )
        kept.append(one)
    return kept


def _fit_rule(kept: Sequence[_Kept]) -> SlotRule | None:
    if not kept:
        return None
    target = np.concatenate([one.after for one in kept])
    made = np.concatenate([one.made for one in kept])
    before = np.concatenate([one.before for one in kept])
    features = np.stack([made, before], axis=1)
    for columns in (features[:, :1], features):
        weights = solve_least_squares(columns, target)
        if weights is None or weights[0] == 0:
            continue
        if measure_size(columns @ weights - target) <= _ALL * measure_size(target):
            keep = float(weights[1]) if len(weights) > 1 else 0.0
            return SlotRule(keep=keep, take=float(weights[0]))
    return None


def _fit_after_start(kept: Sequence[_Kept]) -> Rules:
    """One rule from the second step on, and a start with what the first one gives."""
    first, later = list(kept[:1]), list(kept[1:])
    start, rule = _fit_rule(first), _fit_rule(later)
    if start is None or start.keep or rule is None:
        return {}
    if not _is_average(rule):
        return {}
    return {one.step: rule for one in later} | {first[0].step: start}


def _fit_by_step(kept: Sequence[_Kept]) -> Rules:
    """Numbers of each step, from more elements than one."""
    rules: dict[int, SlotRule] = {}
    for one in kept:
        rule = _fit_rule([one]) if one.after.size > 1 else None
        if rule is None or not _is_average(rule):
            return {}
        rules[one.step] = rule
    return rules


def _is_average(rule: SlotRule) -> bool:
    """Whether it keeps no more than what there was, and takes something."""
    return -_ALL <= rule.keep <= 1 + _ALL and rule.take > 0


def take_gradients(
    context: Context, path: str, step: int, replica: int, statistic: Statistic
) -> list[Value]:
    """A replica's gradients of the statistic's variable, or the slot's, or all."""
    owner = statistic.of or context.infos[path].of
    evidence = context.evidence
    trace = evidence.reference if replica == WHOLE else evidence.observed
    return [
        value
        for key, value in trace.select(
            step=step, phase="local_gradient", replica=replica
        )
        if owner in ("", key.variable)
    ]
