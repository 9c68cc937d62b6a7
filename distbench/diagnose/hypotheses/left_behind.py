"""Replicas that go on from state of their own which is another one on each.

A copy of the weights that every replica has for itself, as a target network may be, is
compared with nothing bit by bit: each may hold what its own examples gave. What its
shard leaves on one device, after the update of all replicas, is what it has to hold.
Weights that are trained as the mean of such copies have one value, and a step that the
replicas take from several is none of one device, as under local SGD.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distbench.compare.arrays.ratio import are_near
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.alone import find_parts
from distbench.diagnose.names import name_replicas, tell_more
from distbench.trace import COMPUTED, INITIAL, TraceKey
from distbench.trace.numbers import Array, are_equal, densify

_AVERAGE = (
    "Average the copies, or sum the gradients, before each step ends. If replicas are "
    "to go on by themselves between averages, as in local SGD, say so with --expect "
    "replicas-diverged: one device does nothing like it."
)


def explain_by_state_left_behind(context: Context) -> Iterator[Hypothesis]:
    """The replicas that are wrong are those whose own state is, after the step before.

    What they compute from it is not predicted. But in each step in which a sum over the
    replicas is wrong, all that add something wrong have to start from wrong state, and
    the others have to be right.
    """
    if context.phase not in COMPUTED or context.evidence.measure.shards_known:
        return
    paths = _list_own(context)
    if not paths or context.evidence.tier == "free":
        return
    predicted: dict[int, Array] = {}
    behind: set[int] = set()
    states: dict[str, None] = {}
    for step, cases in context.list_steps().items():
        left = _find_behind(context, step - 1, paths)
        for number, case in cases:
            parts = find_parts(context, case)
            if parts is None or not set(parts.wrong) <= left.keys():
                return
            predicted[number] = case.observed
            behind |= set(parts.wrong)
            states.update(dict.fromkeys(p for r in parts.wrong for p in left[r]))
    if not predicted:
        return
    first, more = next(iter(states)), tell_more(states)
    yield Hypothesis(
        code="replicas-diverged",
        predicted=predicted,
        detail=f"{name_replicas(sorted(behind))} computes it from '{first}'{more}, "
        "which each replica has for itself, and there the step before has not left "
        "what it leaves on the others and on one device",
        replicas=tuple(sorted(behind)),
    )


def explain_by_weights_of_their_own(context: Context) -> Iterator[Hypothesis]:
    """The replicas compute it from trained copies that an earlier step left different.

    What follows from that is not predicted. But all that is wrong has to come after it.
    """
    if context.phase not in COMPUTED:
        return
    paths = [path for path, info in context.infos.items() if info.is_mean_of_copies]
    begun = _find_apart(context, paths)
    if begun is None:
        return
    step, apart = begun
    if any(case.key.step <= step for case in context.cases):
        return
    when = "from the start" if step == INITIAL else f"since step {step}"
    yield Hypothesis(
        code="replicas-diverged",
        predicted={number: case.observed for number, case in context.list_cases()},
        detail=f"it is computed from '{apart[0]}'{tell_more(apart)}, which is trained "
        f"and of which each replica has a copy of its own: these differ {when}, and "
        "one device takes its step from one value",
        replicas=tuple(range(context.replicas)),
        advice=_AVERAGE,
    )


def _find_apart(
    context: Context, paths: Sequence[str]
) -> tuple[int, tuple[str, ...]] | None:
    """The first step that leaves other values on some replicas, and of which paths."""
    observed = context.evidence.observed
    for step in range(INITIAL, observed.steps):
        apart = []
        for path in paths:
            key = TraceKey(step=step, phase="variable", variable=path)
            copies = [densify(value) for value in observed.get_replicas(key)]
            if any(not are_equal(copy, copies[0]) for copy in copies[1:]):
                apart.append(path)
        if apart:
            return step, tuple(apart)
    return None


def _list_own(context: Context) -> tuple[str, ...]:
    """State of the model of which every replica has its own, metrics left out."""
    shown = context.evidence.observed.metric_paths
    return tuple(
        path
        for path, info in context.infos.items()
        if info.role == "variable" and not info.synchronised and path not in shown
    )


def _find_behind(
    context: Context, step: int, paths: tuple[str, ...]
) -> dict[int, list[str]]:
    """By replica, which of its own state is not what its shard leaves in a step.

    Empty where that is true of all replicas: then the state itself is another one.
    """
    reference, observed = context.evidence.reference, context.evidence.observed
    found: dict[int, list[str]] = {}
    for path in paths:
        for replica in range(context.replicas):
            key = TraceKey(step=step, phase="variable", variable=path, replica=replica)
            seen, due = observed.get(key), reference.get(key)
            if seen is None or due is None:
                continue
            if not are_near(densify(seen), densify(due)):
                found.setdefault(replica, []).append(path)
    return found if len(found) < context.replicas else {}
