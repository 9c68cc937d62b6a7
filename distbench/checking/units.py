"""State that a program keeps in other units on a cluster, and takes for what it is.

Averaged over the replicas, what each adds to an accumulator is an N-th of what one
device adds. Handed to an optimizer that sums, it is N times that again, and right. But
a step that starts from one device's state mixes both units: what goes wrong then is the
bench's doing. Where each run goes on from its own state, nothing else is wrong. The
state may begin in its units as well: then the free run begins with it.

So it is with a number that the rule is given, as a rate that is N times one device's,
where the gradients, or their sums, are an N-th. A rule that is linear in both makes the
same of them, slots included; a step that starts with one device's number does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.checking.attempt import attempt
from distbench.checking.plan import Planned
from distbench.compare.arrays.copies import are_same
from distbench.compare.arrays.ratio import SAME, are_same_factors
from distbench.compare.state.leading import is_number
from distbench.details import Compared
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.names import tell_more
from distbench.evidence import Evidence, Tier
from distbench.observe import Launch, observe
from distbench.target import TargetRef
from distbench.trace import GRADIENTS, INITIAL, STATE, WHOLE, TraceKey, VariableInfo
from distbench.trace.numbers import Array, densify, measure_size
from distbench.verdict import Status

_OTHER: dict[Tier, Tier] = {"exact": "free", "bounded": "free", "free": "bounded"}
"""Steps start from one device's state in the one, in the other from what is there."""
_AGAINST_ONE = "reference"
_MORE = 4.0
"""What mixed units do has to be so many times what the run that goes on could hide."""


def judge_units(
    target: TargetRef,
    item: Planned,
    evidence: Mapping[Tier, Evidence],
    tier: Tier,
    found: Judgement,
    launch: Launch,
) -> Judgement:
    """What a run comes to, if state is kept in other units and is right in these.

    Args:
        target: The subject.
        item: The scenario.
        evidence: What was seen of it, in each tier.
        tier: The one to judge.
        found: What that came to.
        launch: How tasks are started.
    """
    other = _OTHER.get(tier)
    if other is None or not _begins_in_state(evidence[tier], found):
        return found
    if other in evidence:
        return _join(tier, found, evidence)
    seen = attempt(
        launch,
        f"A second run of {item.scenario.id}",
        lambda: observe(target, item.scenario, item.spec, (other,), launch),
    )
    if seen is None:
        return found
    try:
        return _join(tier, found, {**evidence, **seen.evidence})
    finally:
        seen.clear_arrays()


def _join(tier: Tier, found: Judgement, seen: Mapping[Tier, Evidence]) -> Judgement:
    begun: Tier = "bounded" if tier == "free" else tier
    if not {begun, "free"} <= {*seen}:
        return found
    free, mixed = (
        found if each == tier else judge(seen[each]) for each in ("free", begun)
    )
    paths = _list_wrong(free)
    factors = [_find_factor(seen["free"], path) for path in paths]
    if not paths or None in factors or not _mixes(mixed, free, set(paths)):
        return found
    more = tell_more(paths)
    note = (
        f"note: '{paths[0]}'{more} holds {factors[0]:.6g} times what one device holds, "
    )
    gradients = [
        pair for pair in free.compared if pair.wrong and pair.phase in GRADIENTS
    ]
    if gradients:
        infos = seen["free"].observed.by_path
        if not all(is_number(infos[path]) for path in paths) or not all(
            _is_undone(pair, factor) for pair in gradients for factor in factors
        ):
            return found
        first = gradients[0]
        note += (
            f"and {first.phase} of '{first.variable}' is {first.ratio:.6g} times as "
            "large, with what follows: they undo each other, and slots and variables "
            "are right where each run goes on from its own state"
        )
    else:
        note += (
            "and all that is made of it is right where each run goes on from its own "
            "state"
        )
    return replace(
        free,
        status=Status.PASS,
        findings=(),
        worst=None,
        compared=tuple(pair for pair in free.compared if not pair.wrong),
        message="; ".join(filter(None, (found.message, note))),
    )


def _begins_in_state(evidence: Evidence, found: Judgement) -> bool:
    """Whether what is wrong first is state that is not trained."""
    first = next(iter(found.findings), None)
    if found.status is not Status.FAIL or first is None or first.phase not in STATE:
        return False
    if evidence.observed.replicas == 1:
        return False  # as under parameter servers: a sum is a mean there
    trained = {v.path for v in evidence.observed.variables if _is_trained(v)}
    return not trained & set(first.variables)


def _is_trained(info: VariableInfo) -> bool:
    return info.role == "variable" and info.trainable


def _list_wrong(judgement: Judgement) -> list[str]:
    """State that is wrong; empty if anything is but that and gradients."""
    wrong = [pair for pair in judgement.compared if pair.wrong]
    if any(pair.phase not in (*STATE, *GRADIENTS) for pair in wrong):
        return []
    return list(dict.fromkeys(p.variable for p in wrong if p.phase in STATE))


def _is_undone(pair: Compared, factor: float | None) -> bool:
    """Whether a gradient is as many times too small as a number is too large."""
    return (
        pair.ratio is not None
        and factor is not None
        and are_same_factors(pair.ratio * factor, 1.0)
    )


def _find_factor(evidence: Evidence, path: str) -> float | None:
    """N or 1/N, if all replicas hold so much of one device's value at all times."""
    infos = evidence.observed.by_path
    if path not in infos or _is_trained(infos[path]):
        return None
    replicas = evidence.observed.replicas
    held, due = [], []
    for step in range(INITIAL, evidence.observed.steps):
        key = TraceKey(step=step, phase=infos[path].role, variable=path)
        whole = evidence.reference.get(key.at(WHOLE))
        found = [evidence.observed.get(key.at(r)) for r in range(replicas)]
        copies = [copy for copy in found if copy is not None]
        if whole is None or not copies:
            return None
        if step == INITIAL and all(are_same(copy, whole) for copy in copies):
            continue  # what is overwritten may begin with anything
        for copy in copies:
            if whole.shape != copy.shape:
                return None
            held.append(densify(copy).ravel())
            due.append(densify(whole).ravel())
    seen, expected = np.concatenate(held), np.concatenate(due)
    for factor in (1 / replicas, float(replicas)):
        if _are_near(seen, factor * expected):
            return factor
    return None


def _are_near(seen: Array, due: Array) -> bool:
    size = measure_size(due)
    return 0 < size < np.inf and measure_size(seen - due) <= SAME * size


def _mixes(mixed: Judgement, free: Judgement, paths: set[str]) -> bool:
    """Whether what is made of the state is wrong where it starts in other units.

    All that is wrong besides has to be so by far more than the run that goes on from
    its own could hide: then it would show there if the state were wrong as well. Both
    are held against one device: what follows from what the replicas have is as right
    as that.
    """
    bounds = {
        _name_place(pair): pair.bound
        for pair in free.compared
        if pair.relation == _AGAINST_ONE and not pair.wrong
    }
    wrong = [
        pair
        for pair in mixed.compared
        if pair.wrong
        and pair.relation == _AGAINST_ONE
        and pair.variable not in paths
        and (pair.phase not in GRADIENTS or _name_place(pair) in bounds)
    ]
    return bool(wrong) and all(
        pair.error > _MORE * bounds.get(_name_place(pair), np.inf) for pair in wrong
    )


def _name_place(pair: Compared) -> Sequence[object]:
    return pair.step, pair.phase, pair.variable
