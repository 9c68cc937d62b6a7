"""Which number a finding spoils first: what a script without taps can show of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.comparison import Judged
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, TraceKey, VariableInfo
from distbench.trace.numbers import densify, measure_errors
from distbench.verdict import Finding, Outcome

_SHOWN = ("variable", "slot", "iterations", "loss")
"""Phases that need no tap, the easiest to look at first."""


def name_outcomes(
    findings: Sequence[Finding], judged: Sequence[Judged], evidence: Evidence
) -> tuple[Finding, ...]:
    """Give each finding the first wrong number that follows from it.

    Only what was held against the single-device run counts, and only elements that are
    beyond their own bound: a factor that shows in all of them together alone is not to
    be seen in any.
    """
    if not findings:
        return ()
    pairs = [
        item.pair
        for item in judged
        if item.pair is not None and _is_shown(item.pair.key)
    ]
    made = [
        _add_reduction(outcome, pair, evidence)
        for pair in pairs
        if pair.relation == "reference"
        for outcome in _pick_element(pair)
    ]
    order = list_places(evidence.observed.variables)
    made = [
        replace(outcome, index=order.get(outcome.variable, -1))
        for outcome in made
        if outcome.phase != "variable" or outcome.variable in order
    ]
    start = _find_consequence(judged, evidence, order)
    return tuple(
        replace(
            finding,
            outcome=start if finding.step == INITIAL else _find_outcome(finding, made),
        )
        for finding in findings
    )


def list_places(variables: Iterable[VariableInfo]) -> Mapping[str, int]:
    """By path, a place where a script finds a variable.

    That of the subject's own list, whatever the variable is taken for, as for a slot;
    of a counter that among the counters, of which each optimizer has one.
    """
    infos = tuple(variables)
    counters = [info.path for info in infos if info.role == "iterations"]
    listed = [info.path for info in infos if info.listed and info.path not in counters]
    return {path: n for paths in (counters, listed) for n, path in enumerate(paths)}


def _is_shown(key: TraceKey) -> bool:
    if key.step == INITIAL:
        return False
    if key.phase == "loss":
        return not key.variable and key.replica == WHOLE
    return key.phase in _SHOWN


def _find_consequence(
    judged: Sequence[Judged], evidence: Evidence, order: Mapping[str, int]
) -> Outcome | None:
    """What the first step changes most, seen from what is allowed there.

    What is wrong before the first step shows in what the step makes of it. The bench
    itself never sees that: it sets the state right before the step.
    """
    found = [
        item.comparison
        for item in judged
        if item.comparison.relation == "reference"
        and (item.comparison.step, item.comparison.phase) == (0, "variable")
        and item.comparison.variable in order
        and item.comparison.change > item.comparison.resolution > 0
    ]
    if not found:
        return None
    best = max(found, key=lambda c: c.change / c.resolution)
    after = evidence.reference.get(best.key.at(WHOLE))
    before = evidence.get_before(0, "variable", best.variable)
    if after is None or before is None:
        return None
    values = densify(after)
    changes = np.nan_to_num(np.abs(values - densify(before)))
    element = np.unravel_index(int(np.argmax(changes)), changes.shape)
    return Outcome(
        phase="variable",
        step=0,
        variable=best.variable,
        index=order[best.variable],
        element=tuple(int(number) for number in element),
        replica=best.replica,
        expected=float(values[element]),
        observed=float("nan"),
        bound=best.resolution,
    )


def _find_outcome(finding: Finding, wrong: Sequence[Outcome]) -> Outcome | None:
    found = [outcome for outcome in wrong if outcome.step >= finding.step]

    def rank(outcome: Outcome) -> tuple[int, int, bool, float]:
        return (
            outcome.step,
            _SHOWN.index(outcome.phase),
            outcome.variable != finding.variable,
            -abs(outcome.observed - outcome.expected),
        )

    return min(found, key=rank, default=None)


def _pick_element(pair: Pair) -> Iterator[Outcome]:
    """The element that is farthest off, among those beyond their bound."""
    if pair.observed.shape != pair.expected.shape:
        return
    error = measure_errors(pair.observed, pair.expected)
    bound = np.broadcast_to(np.asarray(pair.margin.bound, np.float64), error.shape)
    excess = np.where(error > bound, error, -1.0)
    if not excess.size or excess.max() < 0:
        return
    element = np.unravel_index(int(np.argmax(excess)), excess.shape)
    yield Outcome(
        phase=pair.key.phase,
        step=pair.key.step,
        variable=pair.key.variable,
        index=-1,
        element=tuple(int(number) for number in element),
        replica=pair.key.replica,
        expected=float(pair.expected[element]),
        observed=float(pair.observed[element]),
        bound=float(bound[element]),
    )


def _add_reduction(outcome: Outcome, pair: Pair, evidence: Evidence) -> Outcome:
    """Say of a loss whether it is the replicas' sum or their mean."""
    if outcome.phase != "loss":
        return outcome
    replicas = evidence.observed.replicas
    losses = [evidence.observed.get(pair.key.at(r)) for r in range(replicas)]
    total = float(sum(densify(loss) for loss in losses if loss is not None))
    is_sum = abs(total - outcome.observed) <= abs(total / replicas - outcome.observed)
    return replace(outcome, reduction="sum" if is_sum else "mean")
