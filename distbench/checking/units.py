"""State that a program keeps in other units on a cluster, and takes for what it is.

Averaged over the replicas, what each adds to an accumulator is an N-th of what one
device adds. Handed to an optimizer that sums, it is N times that again, and right. But
a step that starts from one device's state mixes both units: what goes wrong then is the
bench's doing. Where each run goes on from its own state, nothing else is wrong. The
state may begin in its units as well: then the free run begins with it.

So it is with a number that the rule is given, as a rate that is N times one device's,
where the gradients, or their sums, are an N-th. A rule that is linear in both makes the
same of them, slots included; a step that starts with one device's number does not.

Each part of the state is judged by itself: what one device makes of twice as much tells
whether it is read, and of both units together whether its rule is linear.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from distbench.checking.attempt import attempt
from distbench.checking.plan import Planned
from distbench.compare.arrays.ratio import are_same_factors
from distbench.details import Compared
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.names import tell_more
from distbench.evidence import Evidence, Tier
from distbench.observe import Launch, observe
from distbench.target import TargetRef
from distbench.trace import GRADIENTS, STATE, Trace, VariableInfo
from distbench.trace.numbers import densify, measure_gap
from distbench.verdict import Status

_OTHER: dict[Tier, Tier] = {"exact": "free", "bounded": "free", "free": "bounded"}
"""Steps start from one device's state in the one, in the other from what is there."""
_AGAINST_ONE = "reference"
_RAISED = ""
"""In the place of a variable that shows what some state is."""
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
    state = {pair.variable for pair in free.compared if _is_wrong(pair, STATE)}
    others = [p for p in free.compared if p.wrong and p.phase not in STATE]
    tried = {str(t.notes["path"]): t for t in seen["free"].fed.units}
    taken = _list_taken(seen["free"].reference, free, state, tried)
    infos = seen["free"].observed.by_path
    is_trained = any(path in infos and _is_trained(infos[path]) for path in state)
    # What one device makes of other units is proved bit by bit; that each replica does
    # the same shows where a step starts in its units, or, if what a program sets before
    # a step is in units of the cluster there too, by what comes out.
    rest = [p for p in mixed.compared if p.phase in STATE and p.variable not in state]
    by_rule, by_outcome = (
        [pair.wrong for pair in rest if pair.relation == relation]
        for relation in ("follows", _AGAINST_ONE)
    )
    is_other_rule = any(by_rule) and (any(by_outcome) or not by_outcome)
    are_undone = all(_is_undone(pair, tried[path]) for pair in others for path in taken)
    if not taken or is_trained or is_other_rule or not are_undone:
        return found
    note = _tell([unit for path, unit in tried.items() if path in taken], others)
    message = "; ".join(filter(None, (found.message, note)))
    if left := state - taken:
        findings = tuple(each for each in found.findings if left & {*each.variables})
        told = replace(found, findings=findings, message=message)
        return told if findings else found
    return replace(
        free,
        status=Status.PASS,
        findings=(),
        worst=None,
        compared=tuple(pair for pair in free.compared if not pair.wrong),
        message=message,
    )


def _tell(units: Sequence[Trace], others: Sequence[Compared]) -> str:
    """A note of what is in other units; of state, and of what it undoes."""
    paths: dict[object, list[object]] = {}
    for trace in units:
        paths.setdefault(trace.notes["factor"], []).append(trace.notes["path"])
    held = " and ".join(
        f"'{names[0]}'{tell_more(names)} holds {factor:.6g} times what one device holds"
        for factor, names in paths.items()
    )
    if not others:
        return (
            f"note: {held}, and all that is made of it is right where each run goes on "
            "from its own state"
        )
    first = others[0]
    return (
        f"note: {held}, and {first.phase} of '{first.variable}' is {first.ratio:.6g} "
        "times as large, with what follows: they undo each other, and slots and "
        "variables are right where each run goes on from its own state"
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


def _is_wrong(pair: Compared, phases: Collection[str]) -> bool:
    return pair.wrong and pair.phase in phases


def _is_undone(pair: Compared, unit: Trace) -> bool:
    """Whether a gradient is in a unit that state in another one makes up for."""
    undone, part = unit.notes["undone"], unit.notes["part"]
    return (
        pair.phase in GRADIENTS
        and pair.ratio is not None
        and pair.variable in cast(Sequence[str], undone)
        and are_same_factors(pair.ratio, cast(float, part))
    )


def _list_taken(
    reference: Trace,
    free: Judgement,
    wrong: Collection[str],
    tried: Mapping[str, Trace],
) -> set[str]:
    """State in other units that is taken for what it is.

    One device makes something else of what is twice as large. Where that is right in
    the run that goes on, or is state that is itself taken for what it is, the cluster
    reads it in its units.

    Args:
        reference: The single-device run.
        free: What the run that goes on comes to.
        wrong: Paths of the state that is wrong there.
        tried: By path, what one device makes otherwise.
    """
    bounds: dict[tuple[int, str, str], float] = {}
    for pair in free.compared:
        if pair.relation == _AGAINST_ONE and (not pair.wrong or pair.variable in tried):
            place = (pair.step, pair.phase, pair.variable)
            bounds[place] = max(pair.bound, bounds.get(place, 0.0))
    read = {
        path: _list_readers(reference, trace, bounds)
        for path, trace in tried.items()
        if path in wrong
    }
    taken: set[str] = set()
    while (
        more := {
            path
            for path, readers in read.items()
            if readers - {*wrong} or readers & taken
        }
        - taken
    ):
        taken |= more
    return taken


def _list_readers(
    reference: Trace, moved: Trace, bounds: Mapping[tuple[int, str, str], float]
) -> set[str]:
    """Variables that show what some state is; none where one may show it too little.

    All that is otherwise has to be so by far more than the run that goes on from its
    own could hide: then it would show there if the state were wrong as well.
    """
    # A step that raises minds what the state is, and on the cluster none does.
    found = {_RAISED} if moved.notes["raises"] else set[str]()
    for key, value in moved.select():
        bound = bounds.get((key.step, key.phase, key.variable))
        due = reference.get(key)
        if bound is None or due is None:
            continue
        error = measure_gap(densify(value), densify(due))
        if bound < error <= _MORE * bound:
            return set()
        if error > bound:
            found.add(key.variable)
    return found
